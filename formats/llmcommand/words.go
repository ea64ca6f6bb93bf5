package llmcommand

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// OptionError is the error of an option of a command, or of the variable that sets it.
type OptionError struct{ Option, Found, Expected, Hint string }

// Error returns the error on one line.
func (e *OptionError) Error() string {
	return fmt.Sprintf("%s: found %s, expected %s", e.Option, e.Found, e.Expected)
}

// StartOf returns where a command of the program begins among words, and the number of words of its beginning. If there
// is none, it returns -1. Programs may have a folder before their names.
func (p *Program) StartOf(words []string) (index, length int) {
	for _, start := range p.Starts {
		for i := range len(words) - len(start) + 1 {
			if path.Base(words[i]) == start[0] && slices.Equal(words[i+1:i+len(start)], start[1:]) {
				return i, len(start)
			}
		}
	}
	return -1, 0
}

// isOption reports whether a word names an option, and no value such as -1.
func isOption(word string) bool {
	_, err := strconv.ParseFloat(word, 64)
	return strings.HasPrefix(word, "-") && len(word) > 1 && err != nil
}

// option is an option of a command, with its values.
type option struct {
	name   string // with dashes
	source string // where it was found, for messages: its name, or that of a variable
	values []string
}

// isOneOf reports whether the option has one of names.
func (o *option) isOneOf(names []string) bool { return slices.Contains(names, o.name) }

// flagPrefixes are the beginnings of the names of options without a value, but for valuedFlags.
var (
	flagPrefixes = []string{"--enable-", "--disable-", "--no-"}
	valuedFlags  = []string{"--disable-access-log-for-endpoints"}
)

// mostValues returns how many values an option of a name has at most.
func (p *Program) mostValues(name string) int {
	hasName := func(names []string) bool { return slices.Contains(names, name) }
	switch {
	case hasName(p.lists):
		return math.MaxInt
	case slices.ContainsFunc([][]string{p.flags, p.PrefixCache, p.NoPrefixCache, p.KVUnified, p.NoKVUnified}, hasName):
		return 0
	case !hasName(valuedFlags) && slices.ContainsFunc(flagPrefixes, func(prefix string) bool { return strings.HasPrefix(name, prefix) }):
		return 0
	}
	return 1
}

// parse divides words into options and arguments: --name=VALUE, or the words behind --name that are no options, up to the
// most values that the option has. Behind -- are arguments alone. Underscores in names count as dashes.
func (p *Program) parse(words []string) (options []option, arguments []string) {
	for i := 0; i < len(words); i++ {
		switch {
		case words[i] == "--":
			return options, append(arguments, words[i+1:]...)
		case !isOption(words[i]):
			arguments = append(arguments, words[i])
			continue
		}
		name, value, hasValue := strings.Cut(words[i], "=")
		o := option{name: strings.ReplaceAll(name, "_", "-")}
		o.source = o.name
		if hasValue {
			o.values = []string{value}
		}
		for most := p.mostValues(o.name); !hasValue && len(o.values) < most && i+1 < len(words) && !isOption(words[i+1]); i++ {
			o.values = append(o.values, words[i+1])
		}
		options = append(options, o)
	}
	return options, arguments
}

// optionsOf returns the options that environment variables set, and the names of the variables that set options which are not
// read, but for neutral ones.
func (p *Program) optionsOf(variables map[string]string) (options []option, unread []string, err error) {
	known := map[string]bool{}
	for _, v := range p.variables {
		name, negated := variablePrefix+v.name, variablePrefix+"NO_"+v.name
		known[name], known[negated] = true, v.negative != ""
		value, isSet := variables[name]
		if _, isOff := variables[negated]; isOff && v.negative != "" {
			isSet, value = true, "0"
		}
		if !isSet {
			continue
		}
		o := option{name: v.option, source: name, values: []string{value}}
		if v.negative != "" {
			switch value { // is_truthy and is_falsey of llama.cpp's common/arg.cpp
			case "on", "enabled", "true", "1":
			case "off", "disabled", "false", "0":
				o.name = v.negative
			default:
				err = cmp.Or(err, error(&OptionError{Option: name, Found: strconv.Quote(value), Expected: "1 or 0"}))
			}
			o.values = nil
		}
		options = append(options, o)
	}
	for _, name := range slices.Sorted(maps.Keys(variables)) {
		rest, isOurs := strings.CutPrefix(name, variablePrefix)
		isNeutral := slices.ContainsFunc(neutralVariables, func(beginning string) bool { return strings.HasPrefix(rest, beginning) })
		if p.variables != nil && isOurs && !known[name] && !isNeutral {
			unread = append(unread, name)
		}
	}
	return options, unread, err
}

// readable matches a number with a unit, as vLLM takes it: 25.6k are 25600 and 32K are 32768
// (human_readable_int of vllm/engine/arg_utils.py).
var readable = regexp.MustCompile(`^([0-9]+(?:\.[0-9]+)?)([kKmMgGtT])$`)

// units are those of readable numbers.
var units = map[string]float64{"k": 1e3, "m": 1e6, "g": 1e9, "t": 1e12, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}

// maxWhole bounds whole numbers of options: more bytes than a device has.
const maxWhole = 1 << 50

// wholeNumber returns the value of an option that is a whole number of at least 1. Of a value that says that the server
// chooses (-1 or auto) it returns 0.
func (o *option) wholeNumber(value string) (int64, error) {
	if value == "-1" || strings.EqualFold(value, "auto") {
		return 0, nil
	}
	number := math.NaN()
	if parts := readable.FindStringSubmatch(value); parts != nil {
		if count, err := strconv.ParseFloat(parts[1], 64); err == nil {
			number = math.Floor(count * units[parts[2]])
		}
	} else if n, err := strconv.ParseInt(value, 10, 64); err == nil {
		number = float64(n)
	}
	if !(number >= 1 && number <= maxWhole) {
		return 0, &OptionError{Option: o.source, Found: strconv.Quote(value), Expected: "a whole number of at least 1"}
	}
	return int64(number), nil
}

// containsFold reports whether a text has a part, whatever its case.
func containsFold(text, part string) bool {
	return strings.Contains(strings.ToLower(text), strings.ToLower(part))
}
