package document

import (
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"
)

// Values are the options of a kind with their chosen values. An option that was not chosen has its default. Copies
// are independent: Set changes only the copy on which it is called.
type Values struct {
	options []Option
	chosen  map[string]any
}

// NewValues returns options that all have their defaults.
func NewValues(options []Option) Values { return Values{options: options} }

// Options returns all options.
func (v Values) Options() []Option { return v.options }

// Has reports whether there is an option of that name.
func (v Values) Has(name string) bool { return findOption(v.options, name) != nil }

// IsChosen reports whether the option was set.
func (v Values) IsChosen(name string) bool { _, ok := v.chosen[name]; return ok }

// Set chooses a value. For an unknown option, or a value that it does not accept, it returns an *Error that names
// the flag.
func (v *Values) Set(name string, value any) error {
	o := findOption(v.options, name)
	if o == nil {
		return &Error{Path: "--" + name, Found: "an option that there is not", Expected: "one of " + strings.Join(v.names(), ", ")}
	}
	value, err := o.Accept(value)
	if err != nil {
		return err
	}
	v.Put(name, value)
	return nil
}

// Put sets an option to a value that it is known to accept. Copies of v keep the old value.
func (v *Values) Put(name string, value any) {
	v.chosen = maps.Clone(v.chosen)
	if v.chosen == nil {
		v.chosen = map[string]any{}
	}
	v.chosen[name] = value
}

// names returns the names of all options, in order.
func (v Values) names() []string {
	return Map(v.options, func(o *Option) string { return o.Name })
}

// Get returns the value of an option, or nil if there is no option of that name.
func (v Values) Get(name string) any {
	if value, ok := v.chosen[name]; ok {
		return value
	}
	if o := findOption(v.options, name); o != nil {
		return o.Initial()
	}
	return nil
}

func valueOf[T any](v Values, name string) T {
	x, _ := v.Get(name).(T)
	return x
}

// Flag returns the value of a flag, or false if there is no such option.
func (v Values) Flag(name string) bool { return valueOf[bool](v, name) }

// WholeNumber returns the value of a whole number, or 0 if there is no such option.
func (v Values) WholeNumber(name string) int { return valueOf[int](v, name) }

// Number returns the value of a number. It returns 0 if the value is a word, or if there is no such option.
func (v Values) Number(name string) float64 { return valueOf[float64](v, name) }

// Word returns the value of a choice or text, or of a number that is given as a word. Otherwise it returns "".
func (v Values) Word(name string) string { return valueOf[string](v, name) }

// Time returns the value of a duration, or 0 if there is no such option.
func (v Values) Time(name string) time.Duration { return valueOf[time.Duration](v, name) }

// SLO returns the value of a latency target, which is zero if it is not set.
func (v Values) SLO(name string) SLO { return valueOf[SLO](v, name) }

// Equal returns whether two sets of options have the same options with the same values.
func (v Values) Equal(w Values) bool {
	if !slices.Equal(v.names(), w.names()) {
		return false
	}
	return !slices.ContainsFunc(v.names(), func(n string) bool { return v.Get(n) != w.Get(n) })
}

var valuesType = reflect.TypeFor[Values]()

// isStored returns whether a plan stores an option's value: the option has a key, an option that it needs is set,
// and it is not a flag that is off by default and off. A number that is given as a word, or a text that is still
// to be found, is not stored.
func (v Values) isStored(o *Option) bool {
	if word, isText := v.Get(o.Name).(string); isText && (o.Type == NumberOption || o.Type == TextOption && slices.Contains(o.Choices, word)) {
		return false
	}
	if o.Key == "" || o.Retired != "" || v.Get(o.Name) == o.zeroValue() && o.Initial() == o.zeroValue() {
		return false
	}
	return len(o.NeedsOneOf) == 0 || slices.ContainsFunc(o.NeedsOneOf, func(n string) bool { return v.Get(n) != findOption(v.options, n).zeroValue() })
}

// PlanForm returns the values that a plan stores. All are chosen, so that a later change of a default does not
// change their meaning.
func (v Values) PlanForm() Values {
	out := NewValues(v.options)
	for i := range v.options {
		if o := &v.options[i]; v.isStored(o) {
			out.Put(o.Name, v.Get(o.Name))
		}
	}
	return out
}

// node returns the values that a plan stores as a JSON object, in the order of the options.
func (v Values) node() node {
	k := &nodeChildren{}
	for i := range v.options {
		o := &v.options[i]
		if !v.isStored(o) {
			continue
		}
		n := node{kind: stringNode, text: o.Text(v.Get(o.Name))}
		switch x := v.Get(o.Name).(type) {
		case bool:
			n.kind = boolNode
		case int:
			n.kind = numberNode
		case float64:
			n.kind, n.text = numberNode, FormatFloat(x)
		}
		k.keys, k.items = append(k.keys, key{name: o.Key}), append(k.items, n)
	}
	return node{kind: objectNode, children: k}
}

// values sets v from the options of a plan, which must be those of the plan's kind.
func (b *binder) values(n *node, v reflect.Value) {
	if n.kind != objectNode {
		b.fail(n, "an object", "")
		return
	}
	if b.options == nil {
		return // the kind is unknown
	}

	// Describe the options as the fields of a struct, which unknown keys are compared with.
	out := NewValues(b.options)
	info := &structInfo{byName: map[string]int{}, section: -1}
	for i := range b.options {
		o := &b.options[i] // one without a key has no name in a document
		if o.Key != "" {
			info.byName[o.Key] = i
			info.names = append(info.names, o.Key)
		}
		info.fields = append(info.fields, fieldInfo{name: o.Key})
	}

	// Read the value of each.
	mark := len(b.path)
	n.eachChild(func(k *key, item *node) bool {
		optionIndex, ok := info.byName[k.name]
		if !ok {
			b.refuseUnknown(k, info, 0)
			return !b.findings.hasMore
		}
		b.field(k.name)
		if value, ok := b.value(&b.options[optionIndex], item); ok {
			out.Put(b.options[optionIndex].Name, value)
		}
		b.path = b.path[:mark]
		return !b.findings.hasMore
	})
	v.Set(reflect.ValueOf(out.PlanForm()))
}

// value returns the value of one option from n. It returns false after recording an error if the option does not
// accept it.
func (b *binder) value(o *Option, n *node) (any, bool) {
	typ := reflect.TypeOf(o.zeroValue())
	if o.Type == DurationOption {
		typ = durationType
	}
	bound, findingsBefore := reflect.New(typ).Elem(), len(b.findings.list)
	b.bind(n, bound)
	switch {
	case len(b.findings.list) > findingsBefore:
		return nil, false
	case o.Type == DurationOption:
		return time.Duration(bound.Int()), true
	}
	if _, hint := o.Wrong(bound.Interface()); !o.accepts(bound.Interface()) {
		b.fail(n, o.PlanForm().Expected(), hint)
		return nil, false
	}
	return bound.Interface(), true
}

// PlanForm returns the option as plans store it: a number has to be a number there, even if a word may be typed
// for it.
func (o *Option) PlanForm() *Option {
	if o.Type != NumberOption {
		return o
	}
	k := *o
	k.Choices = nil
	return &k
}

func (o *Option) accepts(value any) bool {
	found, _ := o.Wrong(value)
	return found == ""
}

// Check reports to c the values of a plan's options that the options do not accept.
func (v Values) Check(c *Checker) {
	for i := range v.options {
		o := &v.options[i]
		value, set := v.chosen[o.Name]
		if !set || o.Key == "" {
			continue
		}
		if found, hint := o.PlanForm().Wrong(value); found != "" {
			c.Fail("options."+o.Key, found, o.PlanForm().Expected(), hint)
		}
	}
}
