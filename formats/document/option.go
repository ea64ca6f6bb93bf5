package document

import (
	"cmp"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
)

// OptionType says which values an option accepts. The Go type of a value follows from it.
type OptionType uint8

// Types of options, with the Go type of their values.
const (
	FlagOption     OptionType = iota // bool
	WholeOption                      // int
	NumberOption                     // float64
	ChoiceOption                     // string, one of Choices
	DurationOption                   // time.Duration
	SLOOption                        // SLO, zero when not set
	TextOption                       // string; the kind of plan defines what it accepts
)

// Option describes one choice that a kind of plan offers. Flags, completion, help, the configuration file,
// validation and the options of a plan are all made from it.
type Option struct {
	Name    string // the flag's name, such as max-batch
	Key     string // the key in the plan's options, such as max_batch; empty if plans do not store it
	Type    OptionType
	Default any // the default for this kind; nil for the zero value of the type
	// Recommended is the value on the command line if the flag is not set. If it is nil, that is Default.
	Recommended any
	Min         float64 // the lower bound of numbers; for durations in seconds
	Max         float64 // the upper bound of numbers; 0 without one
	MaxExcluded bool    // Max itself is not allowed
	// Choices are the words that a choice may be. A number may be one of them instead of a figure (margin: auto).
	Choices    []string
	NeedsOneOf []string // one of these options must be set as well
	// Retired says why the option is no more. No flag sets it and no plan stores it. Older plans may have it, with
	// the default only. It is empty for an option that is in use.
	Retired string
	Help    string
}

// zeros are the zero values of the types.
var zeros = [...]any{FlagOption: false, WholeOption: 0, NumberOption: 0.0, ChoiceOption: "", DurationOption: time.Duration(0), SLOOption: SLO{}, TextOption: ""}

// zeroValue returns the zero value of the option's Go type.
func (o *Option) zeroValue() any { return zeros[o.Type] }

// Initial returns the value of the option if nobody sets it: its default, or the zero of its type.
func (o *Option) Initial() any {
	if o.Default == nil {
		return o.zeroValue()
	}
	return o.Default
}

// Parse returns the value of the option from its text on the command line. Errors name the flag.
func (o *Option) Parse(text string) (any, error) {
	value, err := o.parse(text)
	if err != nil {
		return nil, &Error{Path: "--" + o.Name, Found: strconv.Quote(text), Expected: o.Expected()}
	}
	return o.Accept(value)
}

// parse returns the value of a command-line flag's text in the option's type. A number may also be one of the
// option's words.
func (o *Option) parse(text string) (any, error) {
	switch o.Type {
	case FlagOption:
		return strconv.ParseBool(text)
	case WholeOption:
		return strconv.Atoi(text)
	case NumberOption:
		if slices.Contains(o.Choices, text) {
			return text, nil
		}
		if o.Max > 0 && o.Max <= 1 {
			return ParseShare(text)
		}
		return strconv.ParseFloat(text, 64)
	case DurationOption:
		return time.ParseDuration(text)
	case SLOOption:
		if text == "" {
			return SLO{}, nil
		}
		return ParseSLO(text)
	}
	return text, nil
}

// Accept checks a value and returns it in the option's Go type: numbers may be whole numbers, and words may be
// texts. Errors name the flag.
func (o *Option) Accept(value any) (any, error) {
	if i, ok := value.(int); ok && o.Type == NumberOption {
		value = float64(i)
	}
	found, hint := o.Wrong(value)
	if found == "" {
		return value, nil
	}
	return nil, &Error{Path: "--" + o.Name, Found: found, Expected: o.Expected(), Hint: hint}
}

// Wrong returns what is wrong with a value for the option, as text, and a hint. For an accepted value both are
// empty.
func (o *Option) Wrong(value any) (found, hint string) {
	isRight := reflect.TypeOf(value) == reflect.TypeOf(o.zeroValue())
	found = fmt.Sprint(value)
	switch v := value.(type) {
	case int:
		isRight = isRight && o.isInRange(float64(v))
	case float64:
		isRight = isRight && o.isInRange(v)
	case time.Duration:
		isRight = isRight && o.isInRange(v.Seconds())
	case SLO:
		parsed, err := o.parse(v.String())
		isRight = isRight && err == nil && parsed == v
	case string:
		isRight = o.Type == TextOption || slices.Contains(o.Choices, v) && (o.Type == ChoiceOption || o.Type == NumberOption)
		if found = strconv.Quote(v); o.Type == ChoiceOption {
			hint = cmp.Or(o.Retired, DidYouMean(v, o.Choices))
		}
	}
	if isRight {
		return "", ""
	}
	return found, hint
}

func (o *Option) isInRange(x float64) bool {
	return x >= o.Min && !math.IsInf(x, 0) && (o.Max == 0 || x < o.Max || x == o.Max && !o.MaxExcluded)
}

// Expected returns a description of the values that the option accepts, for messages. Max 0 stands for no upper
// limit.
func (o *Option) Expected() string {
	switch o.Type {
	case FlagOption:
		return "true or false"
	case ChoiceOption:
		return strings.Join(o.Choices, " or ")
	case SLOOption:
		return "a latency target such as 200ms or 5x"
	case TextOption:
		return "a text"
	}
	text := map[OptionType]string{WholeOption: "a whole number", NumberOption: "a number", DurationOption: "a duration"}[o.Type]
	unit := ""
	if o.Type == DurationOption {
		unit = "s"
	}
	switch {
	case o.Max == 0:
		text += fmt.Sprintf(" of at least %g%s", o.Min, unit)
	case o.MaxExcluded:
		text += fmt.Sprintf(" from %g%s to less than %g%s", o.Min, unit, o.Max, unit)
	default:
		text += fmt.Sprintf(" from %g%s to %g%s", o.Min, unit, o.Max, unit)
	}
	if len(o.Choices) > 0 {
		text += ", or " + strings.Join(o.Choices, ", ")
	}
	return text
}

// Text returns a value as it would be typed for a flag.
func (o *Option) Text(value any) string {
	switch v := value.(type) {
	case SLO:
		return v.String()
	case time.Duration:
		return Duration(v).String()
	}
	return fmt.Sprint(value)
}

// findOption returns the option of that name, or nil if there is none.
func findOption(list []Option, name string) *Option {
	return First(list, func(o *Option) bool { return o.Name == name })
}
