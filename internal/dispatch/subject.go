package dispatch

import (
	"errors"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// MaxSubjectBytes is the length that subjects and patterns may have.
const MaxSubjectBytes = 255

// ErrSubject is wrapped by the errors of ValidSubject, ErrPattern by those of
// Compile.
var (
	ErrSubject = errors.New("bad subject")
	ErrPattern = errors.New("bad pattern")
)

// IsType reports whether name is written as Discord writes dispatch types: upper
// case words joined by single underscores, MESSAGE_UPDATE. It need not be in the
// table: Discord adds types.
func IsType(name string) bool {
	letter, last := false, byte('_')
	for i := range len(name) {
		c := name[i]
		switch {
		case isUpper(c):
			letter = true
		case c >= '0' && c <= '9':
		case c == '_' && last != '_':
		default:
			return false
		}
		last = c
	}
	return letter && last != '_'
}

// Subject returns the dotted subject of a type, guild.member.update for
// GUILD_MEMBER_UPDATE, and any other name as it is.
func Subject(name string) string {
	if !IsType(name) {
		return name
	}
	return strings.ReplaceAll(strings.ToLower(name), "_", ".")
}

// TypeOf returns the type that has the dotted subject, GUILD_MEMBER_UPDATE for
// guild.member.update. ok is false if no type of the table has it.
func TypeOf(subject string) (name string, ok bool) {
	name = strings.ReplaceAll(strings.ToUpper(subject), ".", "_")
	if Lookup(name) == nil || Subject(name) != subject {
		return "", false
	}
	return name, true
}

// ValidSubject returns why an event can't be published under the subject, nil if
// it can: it has no token, an empty one, a wildcard or a character that names
// must not have, or more than MaxSubjectBytes. The error wraps ErrSubject.
func ValidSubject(subject string) error {
	if reason := checkText(subject); reason != "" {
		return fmt.Errorf("%w %q: %s", ErrSubject, subject, reason)
	}
	if strings.ContainsAny(subject, wildcards) {
		return fmt.Errorf("%w %q: *, > and # are for patterns", ErrSubject, subject)
	}
	return nil
}

const wildcards = "*>#"

// checkText checks what subjects and patterns have in common.
func checkText(text string) (reason string) {
	switch {
	case text == "":
		return "it is empty"
	case len(text) > MaxSubjectBytes:
		return fmt.Sprintf("it has %d bytes, at most %d are allowed", len(text), MaxSubjectBytes)
	case !utf8.ValidString(text):
		return "it is not valid UTF-8"
	case hasEmptyToken(text):
		return "it has an empty token (a dot at an end, or two in a row)"
	}
	for _, r := range text {
		if r == ',' || unicode.IsSpace(r) || !unicode.IsPrint(r) {
			return fmt.Sprintf("%q is not allowed in it", r)
		}
	}
	return ""
}

func hasEmptyToken(subject string) bool {
	last := byte('.')
	for i := range len(subject) {
		if subject[i] == '.' && last == '.' {
			return true
		}
		last = subject[i]
	}
	return last == '.'
}

// A Pattern matches subjects token by token, case-sensitively: * is one token, >
// one or more at the end, # zero or more anywhere, everything else itself. It is
// immutable and safe for concurrent use. The zero value matches nothing.
type Pattern struct {
	text   string
	tokens []token
}

type token struct {
	kind tokenKind
	text string // of a literal
}

type tokenKind uint8

const (
	literal tokenKind = iota
	one               // *
	rest              // >
	many              // #
)

// Compile reads a pattern. A type as Discord names it stands for its subject. The
// error says what is wrong with the pattern and wraps ErrPattern.
func Compile(pattern string) (Pattern, error) {
	fail := func(reason string) (Pattern, error) {
		return Pattern{}, fmt.Errorf("%w %q: %s", ErrPattern, pattern, reason)
	}
	if reason := checkText(pattern); reason != "" {
		return fail(reason)
	}
	p := Pattern{text: pattern}
	for text := range strings.SplitSeq(Subject(pattern), ".") {
		if n := len(p.tokens); n > 0 && p.tokens[n-1].kind == rest {
			return fail("> is allowed at the end only; # stands for any number of tokens anywhere")
		}
		switch {
		case text == "*":
			p.tokens = append(p.tokens, token{kind: one})
		case text == ">":
			p.tokens = append(p.tokens, token{kind: rest})
		case text == "#":
			if n := len(p.tokens); n == 0 || p.tokens[n-1].kind != many { // ## is #
				p.tokens = append(p.tokens, token{kind: many})
			}
		case strings.ContainsAny(text, wildcards):
			return fail(fmt.Sprintf("a wildcard is a whole token, in %q it is a part", text))
		default:
			p.tokens = append(p.tokens, token{text: text})
		}
	}
	return p, nil
}

// String returns the pattern as it was compiled.
func (p Pattern) String() string { return p.text }

// Match reports whether the pattern matches a dispatch type or a subject. A name
// with an empty token never matches. It does not allocate.
func (p Pattern) Match(name string) bool {
	if len(p.tokens) == 0 {
		return false
	}
	s := subjectReader{text: name, dot: '.'}
	if IsType(name) {
		s.dot, s.fold = '_', true
	} else if name == "" || hasEmptyToken(name) {
		return false
	}
	// One # is remembered: if what follows it does not match, it takes one token
	// more. Going back to an earlier one could gain nothing.
	var (
		i, at     int
		hash      = -1
		hashToken int
	)
	for at <= len(name) {
		end := s.end(at)
		if i < len(p.tokens) {
			switch t := p.tokens[i]; t.kind {
			case many:
				hash, hashToken = i, at
				i++
				continue
			case rest:
				return true
			case one:
				i, at = i+1, end+1
				continue
			case literal:
				if s.is(at, end, t.text) {
					i, at = i+1, end+1
					continue
				}
			}
		}
		if hash < 0 {
			return false
		}
		hashToken = s.end(hashToken) + 1
		i, at = hash+1, hashToken
	}
	for i < len(p.tokens) && p.tokens[i].kind == many {
		i++
	}
	return i == len(p.tokens)
}

// A subjectReader reads the tokens of a subject, or of a type as if it were one.
type subjectReader struct {
	text string
	dot  byte
	fold bool // upper case stands for lower case
}

func (s *subjectReader) end(at int) int {
	for at < len(s.text) && s.text[at] != s.dot {
		at++
	}
	return at
}

func (s *subjectReader) is(at, end int, text string) bool {
	if end-at != len(text) {
		return false
	}
	for i := range len(text) {
		c := s.text[at+i]
		if s.fold && isUpper(c) {
			c |= 0x20
		}
		if c != text[i] {
			return false
		}
	}
	return true
}

func isUpper(c byte) bool { return c >= 'A' && c <= 'Z' }
