package config

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"

	"github.com/spf13/pflag"
	"github.com/spf13/viper"
)

// ErrHelp is returned by Load if the arguments ask for help: print Usage, end
// with 0.
var ErrHelp = pflag.ErrHelp

// DefaultFile is read if it exists and no other file is named.
const DefaultFile = "sluice.yaml"

const fileFlag = "config"

// Load reads the configuration: args (the program's, without its name) over the
// environment over the file that --config names, or DefaultFile if that exists.
// An empty variable counts as not set.
//
// The error is a *UsageError with everything that is wrong, or ErrHelp.
func Load(args []string) (*Config, error) {
	flags, faults, err := parseFlags(args)
	if err != nil {
		return nil, err
	}
	return load(flags, faults)
}

// Flags returns the settings as flags, and --config, for a program that has
// flags of its own. Parse them and give them to FromFlags.
func Flags() *pflag.FlagSet {
	flags := pflag.NewFlagSet("sluice", pflag.ContinueOnError)
	flags.SortFlags = false
	flags.Usage = func() {}
	flags.SetOutput(io.Discard)
	flags.String(fileFlag, "", "configuration file (default "+DefaultFile+", if it exists)")
	for i := range keys {
		if k := &keys[i]; !k.noFlag {
			flags.String(k.path, k.text, plain(k.doc))
		}
	}
	return flags
}

// FromFlags is Load for flags that are parsed already. Flags that are not those
// of Flags are ignored.
func FromFlags(flags *pflag.FlagSet) (*Config, error) { return load(flags, nil) }

// Usage describes the flags and where else settings come from.
func Usage() string {
	return "Settings come from a YAML file, over it the environment (" + envName(redisURLPath) + "), over it flags.\n\n" +
		Flags().FlagUsagesWrapped(100)
}

// parseFlags parses args. Flags there are none of are faults; the rest is parsed
// as if they were not there.
func parseFlags(args []string) (*pflag.FlagSet, []Fault, error) {
	var faults []Fault
	for {
		flags := Flags()
		err := flags.Parse(args)
		var (
			unknown *pflag.NotExistError
			noValue *pflag.ValueRequiredError
		)
		switch {
		case err == nil:
			for _, arg := range flags.Args() {
				faults = append(faults, Fault{Path: fmt.Sprintf("argument %.16q", arg), Want: "flags only (--name=value)"})
			}
			return flags, faults, nil
		case errors.Is(err, pflag.ErrHelp):
			return nil, nil, ErrHelp
		case errors.As(err, &unknown):
			name := "--" + unknown.GetSpecifiedName()
			if unknown.GetSpecifiedShortnames() != "" {
				name = "-" + unknown.GetSpecifiedShortnames()
			}
			faults = append(faults, unknownFlag(name))
			args = without(args, name)
		case errors.As(err, &noValue):
			faults = append(faults, Fault{Path: "--" + noValue.GetSpecifiedName(), Want: "a value"})
			args = args[:len(args)-1]
		default:
			return nil, nil, &UsageError{Faults: append(faults, Fault{Path: "flags", Reason: err.Error()})}
		}
	}
}

func unknownFlag(name string) Fault {
	bare := strings.TrimLeft(name, "-")
	if k := lookup(bare); k != nil {
		return Fault{
			Path: name, Reason: "it is not taken from the command line, which other users of the machine can read",
			Want: envName(k.path) + ", or " + tokenFilePath,
		}
	}
	return Fault{Path: name, Reason: "there is no such flag", Want: "--" + nearest(bare, flagNames()) + "?"}
}

// without returns args without the flag, and without the argument behind it that
// looks like its value.
func without(args []string, flag string) []string {
	for i, arg := range args {
		name, _, hasValue := strings.Cut(arg, "=")
		if name != flag {
			continue
		}
		end := i + 1
		if !hasValue && end < len(args) && !strings.HasPrefix(args[end], "-") {
			end++
		}
		return append(args[:i:i], args[end:]...)
	}
	return args[:0] // can't be: the flag was found in args
}

// A loader holds the sources while they are read.
type loader struct {
	flags  *pflag.FlagSet
	values *viper.Viper
	file   string // empty: none was read
	faults []Fault
	cfg    Config
}

func load(flags *pflag.FlagSet, faults []Fault) (*Config, error) {
	l := &loader{flags: flags, values: viper.New(), faults: faults}
	l.readFile()
	for i := range keys {
		k := &keys[i]
		l.values.SetDefault(k.path, k.text)
		// Both fail only for wrong calls.
		_ = l.values.BindEnv(k.path, envName(k.path))
		if flag := flags.Lookup(k.path); flag != nil {
			_ = l.values.BindPFlag(k.path, flag)
		}
	}

	bad := map[string]bool{}
	for i := range keys {
		k := &keys[i]
		text, source, err := l.text(k)
		if err != nil {
			bad[k.path] = true
			l.faults = append(l.faults, Fault{Path: k.path, Source: source, Want: k.want, Reason: err.Error()})
			continue
		}
		if k.path == tokenPath {
			text, source = l.token(text, source)
		}
		if text == "" && k.text == "" {
			continue // not set, and that is allowed
		}
		if err := k.set(&l.cfg, text); err != nil {
			bad[k.path] = true
			l.fault(k, text, source, k.want, err.Error())
		}
	}
	for _, r := range rules {
		if bad[r.first] || bad[r.second] || r.ok(&l.cfg) {
			continue
		}
		k := lookup(r.first)
		text, source, _ := l.text(k)
		l.fault(k, text, source, r.want(&l.cfg), "")
	}
	if len(l.faults) > 0 {
		return nil, &UsageError{Faults: l.faults}
	}
	l.cfg.File = l.file
	l.cfg.Warnings = unknownVariables(os.Environ())
	return &l.cfg, nil
}

func (l *loader) fault(k *key, text, source, want, reason string) {
	show := k.show
	if show == nil {
		show = func(text string) string { return fmt.Sprintf("%.200q", text) }
	}
	l.faults = append(l.faults, Fault{Path: k.path, Value: show(text), Source: source, Want: want, Reason: reason})
}

func (l *loader) readFile() {
	path, explicit := DefaultFile, false
	if flag := l.flags.Lookup(fileFlag); flag != nil && flag.Changed {
		path, explicit = flag.Value.String(), true
	}
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) && !explicit {
		return
	}
	if err != nil {
		l.faults = append(l.faults, Fault{Path: "--" + fileFlag, Value: fmt.Sprintf("%q", path), Reason: reasonOf(err), Want: "a YAML file that can be read"})
		return
	}
	l.values.SetConfigType("yaml")
	if err := l.values.ReadConfig(strings.NewReader(string(text))); err != nil {
		l.faults = append(l.faults, Fault{Path: path, Reason: yamlReason(err), Want: "YAML as in docs/configuration.md"})
		return
	}
	l.file = path
	found := l.values.AllKeys()
	slices.Sort(found)
	for _, found := range found {
		if isBelowKey(found) {
			continue // a mapping as a value, which text looks at
		}
		value := l.values.Get(found)
		if isSection(found) {
			if value != nil {
				l.faults = append(l.faults, Fault{Path: found, Source: path, Reason: "it is a section", Want: "settings below it: " + strings.Join(below(found), ", ")})
			}
			continue
		}
		l.faults = append(l.faults, Fault{Path: found, Source: path, Reason: "there is no such setting", Want: nearest(found, paths()) + "?"})
	}
}

// text returns a setting's value as text, and where it comes from.
func (l *loader) text(k *key) (text, source string, err error) {
	switch flag := l.flags.Lookup(k.path); {
	case flag != nil && flag.Changed:
		source = "--" + k.path
	case os.Getenv(envName(k.path)) != "":
		source = envName(k.path)
	case l.file != "" && l.values.InConfig(k.path):
		source = l.file
	}
	value := l.values.Get(k.path)
	if value == nil { // null in the file
		value = k.text
	}
	text, err = toText(value, k.path == presencePath)
	return strings.TrimSpace(text), source, err
}

// token returns the token from the first source that has one; text and source
// are what the others would give.
func (l *loader) token(text, source string) (string, string) {
	if source == envName(tokenPath) {
		return text, source
	}
	if token := strings.TrimSpace(os.Getenv("DISCORD_TOKEN")); token != "" {
		return token, "DISCORD_TOKEN"
	}
	k := lookup(tokenFilePath)
	path, pathSource, err := l.text(k)
	if path == "" || err != nil {
		return text, source
	}
	b, err := os.ReadFile(path)
	if err != nil {
		l.fault(k, path, pathSource, k.want, reasonOf(err))
		return "", ""
	}
	if token := strings.TrimSpace(string(b)); token != "" {
		return token, path
	}
	l.fault(k, path, pathSource, k.want, "it is empty")
	return "", ""
}

// unknownVariables returns a warning for each SLUICE_ variable that is no
// setting. Kubernetes adds such for a service that is called sluice.
func unknownVariables(environ []string) []string {
	var names, warnings []string
	for i := range keys {
		names = append(names, envName(keys[i].path))
	}
	for _, entry := range environ {
		name, _, _ := strings.Cut(entry, "=")
		if !strings.HasPrefix(name, "SLUICE_") || contains(names, name) {
			continue
		}
		warnings = append(warnings, fmt.Sprintf("the variable %s is no setting; the nearest is %s", name, nearest(name, names)))
	}
	return warnings
}
