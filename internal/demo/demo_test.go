package demo_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/sluicehq/sluice/internal/demo"
)

func TestDemo(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	if err := demo.Run(t.Context(), &out, demo.Options{Rate: 400}); err != nil {
		t.Errorf("Run = %v", err)
	}
	for _, want := range []string{"edited ", "deleted ", "roles ", "voice ", "→", "resume", "✓ previous states exact", "✓ handled"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the demo does not show %q:\n%s", want, out.String())
		}
	}
	if strings.Contains(out.String(), "✗") {
		t.Errorf("a check failed:\n%s", out.String())
	}
}
