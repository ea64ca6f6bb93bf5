package kubernetes

import (
	"maps"
	"path"
	"slices"
	"strings"

	"mvdan.cc/sh/v3/expand"
	"mvdan.cc/sh/v3/syntax"

	"inferplan/formats/document"
)

// command is the command of a container that starts a model server.
type command struct {
	words     []string
	variables map[string]string // of its environment
	engine    *engine           // nil if it is none that is known
	following int               // later commands of its script that start one, too
}

// maxScript is the most bytes of a script that are read.
const maxScript = 64 << 10

// shells are the programs that take a script behind an option -c.
var shells = []string{"sh", "bash", "dash", "ash", "zsh"}

// scriptOf returns where the script of a shell is among words, or -1 if they start none.
func scriptOf(words []string) int {
	shell := slices.IndexFunc(words, func(word string) bool { return slices.Contains(shells, path.Base(word)) })
	for i := shell + 1; shell >= 0 && i < len(words) && len(words[i]) > 1 && strings.ContainsAny(words[i][:1], "-+"); i++ {
		if strings.HasSuffix(words[i], "c") && !strings.HasPrefix(words[i], "--") && i+1 < len(words) {
			return i + 1
		}
	}
	return -1
}

// commandOf returns the command of words that starts a model server: of a script the first one that does. What an image
// starts without a command is not known: words without a program are arguments of the image's own.
func commandOf(words []string, variables map[string]string) (command, error) {
	at := scriptOf(words)
	if at < 0 {
		return startOf(words, variables), nil
	}
	text := words[at]
	file, err := syntax.NewParser().Parse(strings.NewReader(text[:min(len(text), maxScript)]), "")
	if err != nil || len(text) > maxScript {
		return command{}, &document.Error{Found: "a script of " + path.Base(words[0]) + " that cannot be read", Expected: "commands", Hint: "give the command of the server itself"}
	}
	s := &script{variables: maps.Clone(variables)}
	syntax.Walk(file, s.visit)
	if s.server.engine == nil { // the script may start what stands behind it: exec "$@"
		s.server = startOf(words[at+1:], s.variables)
	}
	return s.server, nil
}

// startOf returns the command of words, with the variables that are assigned before its program.
func startOf(words []string, variables map[string]string) command {
	c := command{words: words, variables: maps.Clone(variables)}
	if len(words) == 0 || slices.Contains(printers, words[0]) {
		return c
	}
	c.engine = engineOf("", words)
	for ; len(c.words) > 0; c.words = c.words[1:] {
		name, value, isAssigned := strings.Cut(c.words[0], "=")
		if isAssigned && syntax.ValidName(name) {
			c.variables[name] = value
		} else if name != "env" && name != "exec" {
			break
		}
	}
	return c
}

// printers are the commands of a shell that name programs and start none.
var printers = []string{"echo", "printf", "which", "type"}

// script is a script of a shell that is read: which of its commands start model servers, and what its variables are.
type script struct {
	variables map[string]string
	server    command
}

// visit reads a node of a script, and reports whether to read those below it.
func (s *script) visit(node syntax.Node) bool {
	switch n := node.(type) {
	case *syntax.DeclClause:
		s.assign(s.variables, n.Args)
	case *syntax.CallExpr:
		variables := s.variables
		if len(n.Args) > 0 {
			variables = maps.Clone(variables)
		}
		s.assign(variables, n.Assigns)
		var words []string
		for _, word := range n.Args {
			words = append(words, s.expand(word)...)
		}
		started, err := commandOf(words, variables)
		switch {
		case err != nil || started.engine == nil:
		case s.server.engine == nil:
			s.server = started
		default:
			s.server.following++
		}
	}
	return true
}

// assign sets variables.
func (s *script) assign(variables map[string]string, list []*syntax.Assign) {
	for _, a := range list {
		if a.Name != nil && a.Array == nil && a.Index == nil && !a.Naked && !a.Append {
			variables[a.Name.Value] = ""
			if a.Value != nil {
				variables[a.Name.Value] = strings.Join(s.expand(a.Value), " ")
			}
		}
	}
}

// expand returns the words that a shell makes of one. What depends on more than variables stays as it is.
func (s *script) expand(word *syntax.Word) []string {
	var pairs []string
	for name, value := range s.variables {
		pairs = append(pairs, name+"="+value)
	}
	if parts := *word; !syntax.SplitBraces(&parts) {
		if fields, err := expand.Fields(&expand.Config{Env: expand.ListEnviron(pairs...), NoUnset: true}, word); err == nil {
			return fields
		}
	}
	return []string{textOf(word.Parts)}
}

// textOf returns the text of the parts of a word, without quotes.
func textOf(parts []syntax.WordPart) string {
	var text strings.Builder
	for _, part := range parts {
		switch p := part.(type) {
		case *syntax.Lit:
			text.WriteString(p.Value)
		case *syntax.SglQuoted:
			text.WriteString(p.Value)
		case *syntax.DblQuoted:
			text.WriteString(textOf(p.Parts))
		default:
			_ = syntax.NewPrinter().Print(&text, part) // a Builder takes all
		}
	}
	return text.String()
}
