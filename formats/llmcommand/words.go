package llmcommand

import (
	"fmt"
	"math"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// OptionError is the error of an option of a command.
type OptionError struct{ Option, Found, Expected string }

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

// sameName reports whether a word is one of the names of an option. Underscores count as dashes, as for vLLM.
func sameName(names []string, word string) bool {
	return slices.Contains(names, strings.ReplaceAll(word, "_", "-"))
}

// values returns the values of an option among words, of all of its places: --name=VALUE, or the words behind --name up to
// the next option.
func values(words, names []string) (list []string, isSet bool) {
	for i, word := range words {
		name, value, hasValue := strings.Cut(word, "=")
		if !isOption(word) || !sameName(names, name) {
			continue
		}
		isSet = true
		if hasValue {
			list = append(list, value)
			continue
		}
		for _, next := range words[i+1:] {
			if isOption(next) {
				break
			}
			list = append(list, next)
		}
	}
	return list, isSet
}

// lastIndex returns where an option stands last among words, or -1 if it is absent.
func lastIndex(words, names []string) int {
	for i, word := range slices.Backward(words) {
		if name, _, _ := strings.Cut(word, "="); isOption(word) && sameName(names, name) {
			return i
		}
	}
	return -1
}

// text returns the last value of an option, or "" if there is none.
func text(words, names []string) (string, error) {
	list, isSet := values(words, names)
	if !isSet {
		return "", nil
	}
	if len(list) == 0 {
		return "", &OptionError{names[0], "nothing", "a value"}
	}
	return list[len(list)-1], nil
}

// readable matches a number with a unit, as vLLM takes it: 25.6k are 25600 and 32K are 32768
// (human_readable_int of vllm/engine/arg_utils.py).
var readable = regexp.MustCompile(`^([0-9]+(?:\.[0-9]+)?)([kKmMgGtT])$`)

// units are those of readable numbers.
var units = map[string]float64{"k": 1e3, "m": 1e6, "g": 1e9, "t": 1e12, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}

// maxWhole bounds whole numbers of options: more bytes than a device has.
const maxWhole = 1 << 50

// wholeNumber returns an option that is a whole number of at least 1. If it is absent, or a value that says so (-1 or auto), it
// returns 0.
func wholeNumber(words, names []string) (int64, error) {
	value, err := text(words, names)
	if value == "" || err != nil || value == "-1" || strings.EqualFold(value, "auto") {
		return 0, err
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
		return 0, &OptionError{names[0], strconv.Quote(value), "a whole number of at least 1"}
	}
	return int64(number), nil
}

// share returns an option that is a part from 0 to 1. If it is absent, it returns 0.
func share(words, names []string) (float64, error) {
	value, err := text(words, names)
	if value == "" || err != nil {
		return 0, err
	}
	number, err := strconv.ParseFloat(value, 64)
	if err != nil || !(number > 0 && number <= 1) {
		return 0, &OptionError{names[0], strconv.Quote(value), "a number above 0, up to 1"}
	}
	return number, nil
}

// containsFold reports whether a text has a part, whatever its case.
func containsFold(text, part string) bool {
	return strings.Contains(strings.ToLower(text), strings.ToLower(part))
}
