package redisclient

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/redis/go-redis/v9"
)

// LogTo sends what go-redis has to say by itself, a line for each failed dial and
// each cut connection, to logger at debug level. go-redis has one logger for the
// whole process, standard error by default, and no bound on it: a program calls
// LogTo once, before it makes a client. What matters in those lines reaches the
// caller of the command as an error.
func LogTo(logger *slog.Logger) { redis.SetLogger(debugLog{logger}) }

type debugLog struct{ logger *slog.Logger }

func (l debugLog) Printf(ctx context.Context, format string, args ...any) {
	if l.logger.Enabled(ctx, slog.LevelDebug) {
		l.logger.LogAttrs(ctx, slog.LevelDebug, "go-redis", slog.String("text", fmt.Sprintf(format, args...)))
	}
}
