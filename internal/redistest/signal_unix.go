//go:build unix

package redistest

import (
	"os"
	"syscall"
)

var pauseSignal, continueSignal os.Signal = syscall.SIGSTOP, syscall.SIGCONT
