package document

import (
	"reflect"
	"slices"
	"strings"
)

// Rule says which values a field may have by itself. A field names its rule in its tag check, or lists the words that it
// may be there, as in check:"zipf|uniform". The rule of a list holds for its values. A field that documents may leave out
// is absent if it is zero, and then has no rule.
type Rule struct {
	Min, Max    float64           // bounds of a number
	MinExcluded bool              // Min itself is not allowed
	MaxExcluded bool              // Max itself is not allowed
	Words       []string          // the texts that are allowed
	Accepts     func(string) bool // reports whether a text is allowed, if there are no words
	Expected    string
	Hint        string
}

// Rules holds rules by their names.
type Rules map[string]*Rule

// wordsRule returns the rule of a tag that lists words, or nil for another tag.
func wordsRule(tag string) *Rule {
	if !strings.Contains(tag, "|") {
		return nil
	}
	return &Rule{Words: strings.Split(tag, "|")}
}

// ruleOf returns the rule that a field's tag lists or names, or nil without a tag. words is a rule that the tag lists
// itself; a name that c.rules does not have is an error of the program.
func (c *Checker) ruleOf(f *fieldInfo) *Rule {
	if f.words != nil || f.rule == "" {
		return f.words
	}
	rule := c.rules[f.rule]
	if rule == nil {
		panic("there is no rule " + f.rule)
	}
	return rule
}

// accepts returns whether a number or text is one that the rule allows.
func (r *Rule) accepts(v reflect.Value) bool {
	x := 0.0
	switch {
	case v.Kind() == reflect.String && r.Words != nil:
		return slices.Contains(r.Words, v.String())
	case v.Kind() == reflect.String:
		return r.Accepts(v.String())
	case v.CanFloat():
		x = v.Float()
	default:
		x = float64(wholeValue(v))
	}
	return (x > r.Min || x == r.Min && !r.MinExcluded) && (x < r.Max || x == r.Max && !r.MaxExcluded)
}

// checkRule reports the value at the current path if its field's rule does not allow it.
func (c *Checker) checkRule(v reflect.Value, rule *Rule) {
	switch {
	case rule == nil || rule.accepts(v):
	case rule.Words != nil:
		c.OneOf(string(c.path), v.String(), rule.Words...)
	case v.Kind() == reflect.String:
		c.Fail(string(c.path), "the text "+Quote(v.String()), rule.Expected, rule.Hint)
	case v.CanFloat():
		c.Fail(string(c.path), Number(v.Float()), rule.Expected, rule.Hint)
	case v.Type() == microsType:
		c.Fail(string(c.path), "the number "+Micros(v.Int()).String(), rule.Expected, rule.Hint)
	default:
		c.Fail(string(c.path), FormatWhole(wholeValue(v)), rule.Expected, rule.Hint)
	}
}

// wholeValue returns an integer as documents have it.
func wholeValue(v reflect.Value) int64 {
	if v.Type().PkgPath() != "" {
		if w, ok := v.Interface().(interface{ WholeValue() int64 }); ok {
			return w.WholeValue()
		}
	}
	return v.Int()
}
