package kubernetes

import (
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"

	"mvdan.cc/sh/v3/expand"
	"mvdan.cc/sh/v3/syntax"

	"inferplan/formats/document"
)

// command is the command of a container that starts a model server.
type command struct {
	words       []string
	variables   map[string]string // of its environment
	engine      *engine           // nil if it is none that is known
	laterStarts int               // later commands of its script that start one, too
	missing     bool              // its script uses variables without a value
}

// maxScript is the most bytes of a script that are read.
const maxScript = 64 << 10

// shells are the programs that take a script behind an option -c.
var shells = []string{"sh", "bash", "dash", "ash", "zsh"}

// scriptOf returns where the script of a shell is among words, or -1 if they start none. Options may be several letters
// (-euc), stand behind -c, and end with --; -o and -O take the next word.
func scriptOf(words []string) int {
	shell := slices.IndexFunc(words, func(word string) bool { return slices.Contains(shells, path.Base(word)) })
	hasScript := false
	for i := shell + 1; shell >= 0 && i < len(words); i++ {
		letters, isLetters := strings.CutPrefix(words[i], "-")
		switch {
		case words[i] == "--" && hasScript && i+1 < len(words):
			return i + 1
		case strings.HasPrefix(words[i], "+"), strings.HasPrefix(letters, "-"):
		case !isLetters && hasScript:
			return i
		case !isLetters:
			return -1
		default:
			hasScript = hasScript || strings.Contains(letters, "c")
		}
		if (isLetters || strings.HasPrefix(words[i], "+")) && !strings.HasPrefix(letters, "-") && strings.ContainsAny(letters, "oO") {
			i++
		}
	}
	return -1
}

// commandOf returns the command of words that starts a model server: of a script the first one that does. What an image
// starts without a command is not known: words without a program are arguments of the image's own. The error has what of
// a script cannot be read, and its hint.
func commandOf(words []string, variables map[string]string) (command, error) {
	at := scriptOf(words)
	if at < 0 {
		return startOf(words, variables), nil
	}
	text, shell := words[at], path.Base(words[0])
	if len(text) > maxScript {
		return command{}, &document.Error{Found: fmt.Sprintf("a script of %s of %d bytes", shell, len(text)), Expected: fmt.Sprintf("at most %d bytes", maxScript), Hint: "give the command of the server itself"}
	}
	file, err := syntax.NewParser().Parse(strings.NewReader(text), "")
	if err != nil {
		found := "a script of " + shell + " that cannot be read"
		if wrong, ok := errors.AsType[syntax.ParseError](err); ok {
			found += fmt.Sprintf(" at its line %d, column %d", wrong.Pos.Line(), wrong.Pos.Col())
		}
		return command{}, &document.Error{Found: found, Expected: "commands", Hint: "give the command of the server itself"}
	}
	s := &script{Environ: expand.ListEnviron(), variables: map[string]expand.Variable{}, missing: map[string]bool{}, optional: map[*syntax.Stmt]bool{}, conditions: map[*syntax.Stmt]bool{}}
	for name, value := range variables {
		s.variables[name] = expand.Variable{Set: true, Exported: true, Kind: expand.String, Str: value}
	}
	s.setArguments(words[min(at+2, len(words)):])
	syntax.Walk(file, s.visit)
	s.server.missing = s.server.missing || len(s.missing) > 0
	return s.server, s.err
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
	expand.Environ // lists no variables: references to names by other names are not expanded

	variables map[string]expand.Variable // those with Kind expand.Unknown have a value that is not known; @ has the arguments
	missing   map[string]bool            // variables that are used and have no value
	exportAll bool                       // of set -a
	server    command
	err       error // of the command of the server

	// The statements that run or not, by what runs before them; those whose result alone counts; and what holds for the
	// nodes around the visited one, outermost first.
	optional, conditions map[*syntax.Stmt]bool
	nestings             []nesting
}

// nesting says what holds for the nodes below one.
type nesting struct{ isOptional, isCondition bool }

// Get returns a variable or a parameter of the shell, as expand.Environ.
func (s *script) Get(name string) expand.Variable {
	arguments := s.variables["@"]
	switch i, err := strconv.Atoi(name); {
	case name == "*":
		return arguments
	case name == "#" && arguments.Kind == expand.Indexed:
		return expand.Variable{Set: true, Kind: expand.String, Str: strconv.Itoa(len(arguments.List))}
	case err == nil && arguments.Kind == expand.Indexed && i >= 1 && i <= len(arguments.List):
		return expand.Variable{Set: true, Kind: expand.String, Str: arguments.List[i-1]}
	}
	return s.variables[name]
}

// setArguments sets the arguments of the shell: $1, $2 and so on.
func (s *script) setArguments(words []string) {
	s.set("@", expand.Variable{Set: true, Kind: expand.Indexed, List: words})
}

// set sets a variable. If the statement may not run, or runs in another shell, the value is unknown from then on.
func (s *script) set(name string, v expand.Variable) {
	if len(s.nestings) > 0 && s.nestings[len(s.nestings)-1].isOptional {
		v = unknownVariable(name, v.Exported)
	}
	s.variables[name] = v
}

// unknownVariable returns a variable whose value is not known. Programs that get it have its reference.
func unknownVariable(name string, isExported bool) expand.Variable {
	return expand.Variable{Set: true, Exported: isExported, Kind: expand.Unknown, Str: "$" + name}
}

// exported returns the variables that programs get.
func (s *script) exported() map[string]string {
	exported := map[string]string{}
	for name, v := range s.variables {
		if v.Exported && v.Set {
			exported[name] = v.Str
		}
	}
	return exported
}

// visit reads a node of a script, and reports whether to read those below it. It is called with nil behind these.
func (s *script) visit(node syntax.Node) bool {
	if node == nil {
		s.nestings = s.nestings[:len(s.nestings)-1]
		return true
	}
	var c nesting
	if n := len(s.nestings); n > 0 {
		c = s.nestings[n-1]
	}
	switch n := node.(type) {
	case *syntax.Stmt:
		c.isOptional, c.isCondition = c.isOptional || s.optional[n] || n.Background, c.isCondition || s.conditions[n]
	case *syntax.BinaryCmd:
		s.optional[n.Y] = n.Op == syntax.OrStmt || n.Op == syntax.AndStmt && isTest(n.X)
	case *syntax.IfClause:
		c.isOptional = true
		for _, statement := range n.Cond {
			s.conditions[statement] = true
		}
	case *syntax.WhileClause:
		c.isOptional = true
		for _, statement := range n.Cond {
			s.conditions[statement] = true
		}
	case *syntax.WordIter:
		s.set(n.Name.Value, unknownVariable(n.Name.Value, false))
	case *syntax.ForClause, *syntax.CaseClause, *syntax.FuncDecl, *syntax.Subshell, *syntax.CmdSubst, *syntax.ProcSubst:
		c.isOptional = true
	case *syntax.DeclClause:
		s.assign(n.Args, n.Variant.Value == "export" || slices.ContainsFunc(n.Args, func(a *syntax.Assign) bool { return a.Name == nil && a.Value != nil && a.Value.Lit() == "-x" }))
	case *syntax.CallExpr:
		s.call(n, c)
	}
	s.nestings = append(s.nestings, c)
	return true
}

// isTest reports whether a statement only tests something.
func isTest(statement *syntax.Stmt) bool {
	switch n := statement.Cmd.(type) {
	case *syntax.TestClause:
		return true
	case *syntax.BinaryCmd:
		return isTest(n.X)
	case *syntax.CallExpr:
		return len(n.Args) > 0 && slices.Contains([]string{"[", "test"}, n.Args[0].Lit())
	}
	return false
}

// call reads a simple command: assignments, changes of the shell's arguments and variables, or the start of a program.
func (s *script) call(n *syntax.CallExpr, c nesting) {
	if len(n.Args) == 0 {
		s.assign(n.Assigns, s.exportAll)
		return
	}
	var words []string
	var unexpanded *syntax.Word
	for _, word := range n.Args {
		fields, isExpanded := s.expand(word)
		if words = append(words, fields...); !isExpanded && unexpanded == nil {
			unexpanded = word
		}
	}
	switch {
	case len(words) == 0:
		return
	case words[0] == "unset":
		for _, name := range words[1:] {
			s.set(name, expand.Variable{})
		}
		return
	case words[0] == "set" && len(words) > 1 && words[1] == "--":
		s.setArguments(words[2:])
		if unexpanded != nil {
			s.variables["@"] = unknownVariable("@", false)
		}
		return
	case words[0] == "set":
		s.exportAll = s.exportAll || slices.ContainsFunc(words[1:], func(word string) bool { return strings.HasPrefix(word, "-") && strings.Contains(word, "a") })
		return
	case words[0] == "shift":
		list, count := s.variables["@"].List, 1
		if len(words) > 1 {
			count, _ = strconv.Atoi(words[1])
		}
		s.setArguments(list[min(max(count, 0), len(list)):])
		return
	}

	// Variables that are assigned before the program are its own.
	own := &script{Environ: s.Environ, variables: maps.Clone(s.variables), missing: s.missing}
	own.assign(n.Assigns, true)
	started, err := commandOf(words, own.exported())
	isQuestion := c.isCondition || slices.ContainsFunc(words[1:], func(word string) bool { return word == "--version" || word == "--help" })
	switch {
	case isQuestion:
	case s.server.engine != nil || s.err != nil:
		if started.engine != nil {
			s.server.laterStarts++
		}
	case err != nil:
		s.server, s.err = started, err
	case started.engine != nil:
		s.server = started
		if unexpanded != nil && started.engine.program != nil {
			s.err = unexpandedError(unexpanded)
		}
	}
}

// unexpandedError returns the error for a word of the command of a server whose value is not known.
func unexpandedError(word *syntax.Word) error {
	hint := "give the value itself, or that of its variable in env of the container"
	syntax.Walk(word, func(node syntax.Node) bool {
		switch node.(type) {
		case *syntax.CmdSubst, *syntax.ProcSubst:
			hint = "write what this command prints in its place"
		}
		return true
	})
	return &document.Error{Found: "the word " + textOf(word.Parts) + " of a script", Expected: "words and variables with known values", Hint: hint}
}

// assign sets variables. What other programs print, entries of arrays and what else is not carried out make them unknown.
func (s *script) assign(list []*syntax.Assign, isExported bool) {
	for _, a := range list {
		if a.Name == nil {
			continue
		}
		name := a.Name.Value
		old := s.variables[name]
		if a.Naked {
			old.Exported = old.Exported || isExported
			s.set(name, old)
			continue
		}
		v := expand.Variable{Set: true, Exported: isExported || old.Exported, Kind: expand.String}
		isExpanded := a.Array == nil && a.Index == nil
		if a.Value != nil {
			fields, isValue := s.expand(a.Value)
			v.Str, isExpanded = strings.Join(fields, " "), isExpanded && isValue
		}
		if a.Append {
			v.Str, isExpanded = old.Str+v.Str, isExpanded && (!old.Set || old.Kind == expand.String)
		}
		if !isExpanded {
			v = unknownVariable(name, v.Exported)
		}
		s.set(name, v)
	}
}

// expand returns the words that a shell makes of one. If that depends on more than known variables, it returns the word
// as it is, and false. Braces stay as they are, too.
func (s *script) expand(word *syntax.Word) ([]string, bool) {
	isKnown := true
	check := func(name string) {
		if !syntax.ValidName(name) {
			name = "@" // of the arguments
		}
		v, isSet := s.variables[name]
		if !isSet {
			s.missing[name] = true
		}
		isKnown = isKnown && (!v.Set || v.Kind != expand.Unknown)
	}
	syntax.Walk(word, func(node syntax.Node) bool {
		switch n := node.(type) {
		case *syntax.ParamExp:
			if n.Excl || n.Names != 0 || n.Param == nil {
				isKnown = false
			} else {
				check(n.Param.Value)
			}
		case *syntax.CmdSubst, *syntax.ProcSubst, *syntax.ExtGlob:
			isKnown = false
		case *syntax.ArithmExp:
			if n.X == nil {
				return true
			}
			syntax.Walk(n.X, func(node syntax.Node) bool {
				if name, ok := node.(*syntax.Word); ok && syntax.ValidName(name.Lit()) {
					check(name.Lit())
				}
				return true
			})
		}
		return true
	})
	parts := *word
	hasBraces := syntax.SplitBraces(&parts)
	if isKnown && !hasBraces {
		if fields, err := expand.Fields(&expand.Config{Env: s, NoUnset: true}, word); err == nil {
			return fields, true
		}
	}
	return []string{textOf(word.Parts)}, hasBraces && isKnown && !hasReference(word)
}

// hasReference reports whether a word has more than text.
func hasReference(word *syntax.Word) (found bool) {
	syntax.Walk(word, func(node syntax.Node) bool {
		switch node.(type) {
		case *syntax.ParamExp, *syntax.CmdSubst, *syntax.ArithmExp, *syntax.ProcSubst:
			found = true
		}
		return true
	})
	return found
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
