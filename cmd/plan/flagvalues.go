package main

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"inferplan/formats/document"
)

// shareFlags are the flags whose numbers are shares or factors, which may be given in per cent.
var shareFlags = []string{"attainment", "held-out", "jitter", "load", "require-gap", "tolerance", "up-to"}

// shareFlag is the value of a flag that is a number or a percentage: 0.8 or 80%.
type shareFlag struct{ pflag.Value }

// Set reads a number or a percentage.
func (f shareFlag) Set(text string) error {
	v, err := document.ParseShare(text)
	if err != nil {
		return err
	}
	return f.Value.Set(strconv.FormatFloat(v, 'g', -1, 64))
}

// Type returns the word for the value in the help.
func (f shareFlag) Type() string { return "share" }

// acceptPercent lets the flags of a verb, and of those below it, that are shares be given in per cent.
func acceptPercent(cmd *cobra.Command) {
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if f.Value.Type() == "float64" && slices.Contains(shareFlags, f.Name) {
			f.Value = shareFlag{f.Value}
		}
	})
	for _, c := range cmd.Commands() {
		acceptPercent(c)
	}
}

// expectedValues says what flags take, by the type of their value.
var expectedValues = map[string]string{
	"bool": "true or false", "duration": "a duration such as 30s or 200ms", "float64": "a number", "int": "a whole number", "intSlice": "whole numbers with commas between them",
	"share": "a share such as 0.8 or 80%", "stringToString": "KEY=VALUE", "uint64": "a whole number of at least 0",
}

// flagError returns the error of parsing a flag in our own words: the flag, what was found and what was expected.
func flagError(err error) error {
	if e, ok := errors.AsType[*pflag.InvalidValueError](err); ok {
		expected, isKnown := expectedValues[e.GetFlag().Value.Type()]
		if _, isNumber := errors.AsType[*strconv.NumError](e); !isKnown && isNumber { // of a type of its own
			expected, isKnown = "a number", true
		}
		if !isKnown {
			return fmt.Errorf("--%s: %w", e.GetFlag().Name, e.Unwrap())
		}
		return fmt.Errorf("--%s: found %q, expected %s", e.GetFlag().Name, e.GetValue(), expected)
	}
	if e, ok := errors.AsType[*pflag.ValueRequiredError](err); ok {
		return fmt.Errorf("--%s: found no value, expected one: %s", e.GetFlag().Name, e.GetFlag().Usage)
	}
	if e, ok := errors.AsType[*pflag.NotExistError](err); ok {
		if e.GetSpecifiedShortnames() != "" {
			return fmt.Errorf("unknown flag: -%s", e.GetSpecifiedName())
		}
		return fmt.Errorf("unknown flag: --%s", e.GetSpecifiedName())
	}
	if e, ok := errors.AsType[*pflag.InvalidSyntaxError](err); ok {
		return fmt.Errorf("found %q, expected a flag such as --quiet or --seed 2", e.GetSpecifiedFlag())
	}
	return err
}

// Texts of cobra about arguments and flags that are missing, which it returns as plain errors.
var (
	wrongCount   = regexp.MustCompile(`^(?:accepts|requires) (at least |at most |between \d+ and )?(\d+) arg\(s\), (?:only )?received (\d+)$`)
	missingFlags = regexp.MustCompile(`^required flag\(s\) (.*) not set$`)
)

// usageError returns cobra's error about a command line in our own words.
func usageError(cmd *cobra.Command, err error) error {
	if m := wrongCount.FindStringSubmatch(err.Error()); m != nil {
		found, _ := strconv.Atoi(m[3])
		expected, _ := strconv.Atoi(m[2])
		return fmt.Errorf("found %s, expected %s%s", document.CountOf(found, "argument"), m[1], document.CountOf(expected, "argument"))
	}
	if m := missingFlags.FindStringSubmatch(err.Error()); m != nil {
		var lines []string
		for _, name := range strings.Split(strings.Trim(m[1], `"`), `", "`) {
			lines = append(lines, fmt.Sprintf("--%s: found nothing, expected one: %s", name, cmd.Flag(name).Usage))
		}
		return errors.New(strings.Join(lines, "\n"))
	}
	return flagError(err)
}
