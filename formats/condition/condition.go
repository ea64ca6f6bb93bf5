package condition

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/common/types/traits"
)

// MaxLength bounds the text of an expression, in bytes.
const MaxLength = 1000

// maxCost bounds the work of one evaluation.
const maxCost = 100_000

// maxNesting bounds the nesting of list types.
const maxNesting = 4

// Error says what is wrong with an expression, and where.
type Error struct {
	Column int // the column in characters, from 1
	Reason string
}

// Error implements error.
func (e *Error) Error() string { return fmt.Sprintf("column %d: %s", e.Column, e.Reason) }

// ValueKind is the kind of value that an expression must have.
type ValueKind string

// The kinds of values.
const (
	Bool  ValueKind = "bool"
	Count ValueKind = "int or list" // a number of items, or a list of them
	Text  ValueKind = "string"
)

// Scope holds the names that expressions may use.
type Scope struct{ env *cel.Env }

// KnownType reports whether a text names a type.
func KnownType(text string) bool { return typeOf(text, 0) != nil }

// typeOf returns the CEL type that a text such as list(int) names, or nil if it names none. depth counts the lists
// around it.
func typeOf(text string, depth int) *cel.Type {
	switch text {
	case "bool":
		return cel.BoolType
	case "int":
		return cel.IntType
	case "double":
		return cel.DoubleType
	case "string":
		return cel.StringType
	}
	if rest, ok := strings.CutPrefix(text, "list("); ok && depth < maxNesting {
		if inner, ok := strings.CutSuffix(rest, ")"); ok {
			if t := typeOf(inner, depth+1); t != nil {
				return cel.ListType(t)
			}
		}
	}
	return nil
}

// NewScope returns a scope for conditions (expressions of Google's CEL): the names that they may use, each with its
// type as text, such as int or list(string). A name may contain dots. Numbers of any type can be compared with each other.
func NewScope(names map[string]string) (*Scope, error) {
	options := []cel.EnvOption{cel.ParserExpressionSizeLimit(MaxLength), cel.ParserRecursionLimit(50), cel.CrossTypeNumericComparisons(true)}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		t := typeOf(names[name], 0)
		if t == nil {
			return nil, fmt.Errorf("the type %q of %s is not known", names[name], name)
		}
		options = append(options, cel.Variable(name, t))
	}
	env, err := cel.NewEnv(options...)
	if err != nil {
		return nil, fmt.Errorf("making the scope of conditions: %w", err)
	}
	return &Scope{env}, nil
}

// Expression is a checked expression.
type Expression struct {
	text     string
	program  cel.Program
	constant ref.Val // its value if it depends on no name, else nil
}

// Compile checks an expression and prepares it. Its value must be of the wanted kind. An error is an *Error, with
// the column. An expression that depends on no name is evaluated at once.
func (s *Scope) Compile(text string, wanted ValueKind) (*Expression, error) {
	if len(text) > MaxLength {
		return nil, &Error{1, fmt.Sprintf("%d bytes, expected at most %d", len(text), MaxLength)}
	}
	ast, issues := s.env.Compile(text)
	if issues != nil && len(issues.Errors()) > 0 {
		firstErr := issues.Errors()[0]
		reason, _, _ := strings.Cut(firstErr.Message, "\n")
		return nil, &Error{firstErr.Location.Column() + 1, reason}
	}
	if t := ast.OutputType(); !wanted.accepts(t) {
		return nil, &Error{1, fmt.Sprintf("its value is of type %s, expected %s", t, wanted)}
	}
	program, err := s.env.Program(ast, cel.CostLimit(maxCost))
	if err != nil {
		return nil, &Error{1, err.Error()}
	}
	x := &Expression{text: text, program: program}
	if value, _, err := program.Eval(map[string]any{}); err == nil {
		x.constant = value
	}
	return x, nil
}

// accepts returns whether a CEL expression of type t gives a value of the kind w. A list counts as a number: that
// of its elements. Every kind but Bool and Count is a text.
func (k ValueKind) accepts(t *cel.Type) bool {
	switch k {
	case Bool:
		return t.Kind() == types.BoolKind
	case Count:
		return t.Kind() == types.IntKind || t.Kind() == types.ListKind
	}
	return t.Kind() == types.StringKind
}

// Lookup returns the value of a name, or false if it has none.
type Lookup func(name string) (any, bool)

// ResolveName implements cel.Activation.
func (v Lookup) ResolveName(name string) (any, bool) { return v(name) }

// Parent implements cel.Activation.
func (Lookup) Parent() cel.Activation { return nil }

// evaluate returns the value of the expression. Any failure becomes an error, a panic too, because a server that
// evaluates must survive any request. values looks up the names in the expression. An expression without names was
// evaluated when it was compiled.
func (x *Expression) evaluate(values Lookup) (_ ref.Val, err error) {
	if x.constant != nil {
		return x.constant, nil
	}
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("evaluating %q: %v", x.text, p)
		}
	}()
	value, _, err := x.program.Eval(values)
	if err != nil {
		return nil, fmt.Errorf("evaluating %q: %w", x.text, err)
	}
	return value, nil
}

// valueAs returns the value of an expression as type T, which errors call by its name.
func valueAs[T ref.Val](x *Expression, values Lookup, name string) (result T, err error) {
	value, err := x.evaluate(values)
	if err != nil {
		return result, err
	}
	result, ok := value.(T)
	if !ok {
		return result, fmt.Errorf("evaluating %q: a value of type %s, expected %s", x.text, value.Type(), name)
	}
	return result, nil
}

// Holds returns the value of a condition, or an error if it has none.
func (x *Expression) Holds(values Lookup) (bool, error) {
	b, err := valueAs[types.Bool](x, values, "bool")
	return bool(b), err
}

// Items returns the value of an expression for a number of items: a number, or the length of a list.
func (x *Expression) Items(values Lookup) (int64, error) {
	value, err := x.evaluate(values)
	if err != nil {
		return 0, err
	}
	n, ok := value.(types.Int)
	if list, isList := value.(traits.Sizer); isList {
		n, ok = list.Size().(types.Int)
	}
	if !ok || n < 0 {
		return 0, fmt.Errorf("evaluating %q: %v, expected a number of items", x.text, value)
	}
	return int64(n), nil
}

// Words returns the value of an expression for a text.
func (x *Expression) Words(values Lookup) (string, error) {
	s, err := valueAs[types.String](x, values, "a text")
	return string(s), err
}

// ConstantItems returns the number of items of an expression that depends on no name. Otherwise ok is false.
func (x *Expression) ConstantItems() (n int64, ok bool) {
	if x.constant == nil {
		return 0, false
	}
	n, err := x.Items(nil)
	return n, err == nil
}
