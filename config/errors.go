package config

import (
	"fmt"
	"strings"
)

// ExitCode is the code with which a program ends that was configured or called
// wrongly.
const ExitCode = 2

// A UsageError holds everything that is wrong with a configuration.
type UsageError struct {
	Faults []Fault
}

// A Fault is one thing that is wrong.
type Fault struct {
	Path   string // of the setting, or what stands in its place
	Value  string // as it was given, or what may be shown of it; empty if that is nothing
	Source string // where it was given: a flag, a variable, a file; empty: by default
	Want   string // what is allowed
	Reason string // what is wrong with the value, where Want does not say it; may be empty
}

// Error has a line for each fault.
func (e *UsageError) Error() string {
	var b strings.Builder
	if len(e.Faults) == 1 {
		b.WriteString("config: 1 setting can't be used:")
	} else {
		fmt.Fprintf(&b, "config: %d settings can't be used:", len(e.Faults))
	}
	for _, f := range e.Faults {
		b.WriteString("\n  " + f.String())
	}
	return b.String()
}

// ExitCode returns the code with which the program is to end.
func (e *UsageError) ExitCode() int { return ExitCode }

// String is the fault on one line.
func (f Fault) String() string {
	var b strings.Builder
	b.WriteString(f.Path)
	if f.Value != "" {
		b.WriteString(" = " + f.Value)
	}
	if f.Source != "" {
		b.WriteString(" (" + f.Source + ")")
	}
	if f.Reason != "" {
		b.WriteString(": " + f.Reason)
	}
	if f.Want != "" {
		b.WriteString(": want " + f.Want)
	}
	return b.String()
}
