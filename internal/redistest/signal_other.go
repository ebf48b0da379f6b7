//go:build !unix

package redistest

import "os"

var pauseSignal, continueSignal os.Signal
