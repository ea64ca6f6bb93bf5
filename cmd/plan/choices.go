package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"inferplan/formats/document"
	"inferplan/planner"
	"inferplan/planner/kind"
)

// optionFlags are the flags for the options of all planning methods, one flag for each name. Which of them a solve
// uses is known only with its workload.
type optionFlags struct {
	list []*optionFlag
}

// optionFlag is the flag for all options of one name.
type optionFlag struct {
	name    string
	kinds   []string // kinds of plan that have the option, in the order of the methods
	options []document.Option
	text    string
	isSet   bool // set on the command line, in the environment or in the configuration file
	isTyped bool // set on the command line
}

// newOptionFlags makes a flag for every planning option that the method of some kind of plan (pool, gear, ...) has.
// Options of the same name share one flag. Retired options have none.
func newOptionFlags(cmd *cobra.Command) *optionFlags {
	c := &optionFlags{}
	for _, k := range planner.Kinds() {
		for _, o := range planner.MethodOf(k).Options() {
			if o.Retired != "" {
				continue
			}
			f := c.flagNamed(o.Name)
			if f == nil {
				f = &optionFlag{name: o.Name}
				c.list = append(c.list, f)
			}
			f.kinds, f.options = append(f.kinds, k), append(f.options, o)
		}
	}
	// Register the flags. Those of options that are on or off need no value.
	for _, f := range c.list {
		flag := cmd.Flags().VarPF(f, f.name, "", "")
		f.annotate(flag)
		if f.options[0].Type == document.FlagOption {
			flag.NoOptDefVal = "true"
		}
		var words []string
		for _, o := range f.options {
			for _, w := range o.Choices {
				if !slices.Contains(words, w) {
					words = append(words, w)
				}
			}
		}
		if len(words) > 0 {
			completeFlag(cmd, f.name, words...)
		}
	}
	return c
}

// flagNamed returns the flag of a name, or nil if there is none yet.
func (c *optionFlags) flagNamed(name string) *optionFlag {
	for _, f := range c.list {
		if f.name == name {
			return f
		}
	}
	return nil
}

var _ pflag.Value = (*optionFlag)(nil)

// String returns the text that was given.
func (f *optionFlag) String() string { return f.text }

// Set stores the text. It is parsed when the flags are checked, so that the messages are our own.
func (f *optionFlag) Set(text string) error {
	f.text, f.isSet = text, true
	return nil
}

// Type returns the word for the value in the help.
func (f *optionFlag) Type() string {
	words := map[document.OptionType]string{document.FlagOption: "bool", document.WholeOption: "int", document.NumberOption: "float", document.DurationOption: "time"}
	return cmp.Or(words[f.options[0].Type], "string")
}

// Annotations of a flag that not all kinds of plans have, or whose help differs between kinds: the kinds, and the
// help for each.
const (
	kindsOfFlag = "plan kinds"
	helpOfFlag  = "help by plan kind"
)

// annotate sets the flag's help and, if the kinds differ, annotates it with the kinds that have it and the help for
// each. The help of verbs then lists the flag below these kinds.
func (f *optionFlag) annotate(flag *pflag.Flag) {
	var texts []string
	for _, o := range f.options {
		text := o.Help
		if initial := cmp.Or(o.Recommended, o.Default); initial != nil {
			text += " (default " + o.Text(initial) + ")"
		}
		texts = append(texts, text)
	}
	flag.Usage = texts[0]
	if len(slices.Compact(slices.Clone(texts))) > 1 || len(f.kinds) < len(planner.Kinds()) {
		flag.Annotations = map[string][]string{kindsOfFlag: f.kinds, helpOfFlag: texts}
	}
}

// noteTyped records which flags were typed. It has to run before the configuration is read, because the
// configuration may set options for all solves that only some use.
func (c *optionFlags) noteTyped(flags *pflag.FlagSet) {
	for _, f := range c.list {
		f.isTyped = flags.Changed(f.name)
	}
}

// parseError returns the error for a value that no method accepts, or nil if one accepts it.
func (f *optionFlag) parseError(text string) error {
	var parseErr error
	maxChoices := 0
	for i := range f.options {
		_, err := f.options[i].Parse(text)
		if err == nil {
			return nil
		}
		if n := len(f.options[i].Choices); n >= maxChoices { // the error that names the most words
			parseErr, maxChoices = err, n
		}
	}
	return parseErr
}

// check refuses values that no method accepts, and flags that were typed without the flag that they need.
func (c *optionFlags) check(flags *pflag.FlagSet) error {
	for _, f := range c.list {
		if !f.isSet {
			continue
		}
		if err := f.parseError(f.text); err != nil {
			return withCode(exitUsage, err)
		}
		needs := f.options[0].NeedsOneOf
		if f.isTyped && len(needs) > 0 && !slices.ContainsFunc(needs, flags.Changed) {
			return usageErrorf("--%s needs --%s\n  hint: %s", f.name, strings.Join(needs, " or --"), f.options[0].Help)
		}
	}
	return nil
}

// methodOptions returns the options of a method that were set, and the recommended values of others. An option
// that the method does not have is included if it was typed, so that it is refused. If the environment or the
// configuration file sets it, it is ignored.
func (c *optionFlags) methodOptions(m *kind.Method) (map[string]any, error) {
	out := map[string]any{}
	for _, f := range c.list {
		i := slices.Index(f.kinds, m.Kind)
		switch {
		case !f.isSet && i >= 0 && f.options[i].Recommended != nil:
			out[f.name] = f.options[i].Recommended
			continue
		case !f.isSet || i < 0 && !f.isTyped:
			continue
		case i < 0:
			out[f.name] = f.text
			continue
		}
		value, err := f.options[i].Parse(f.text)
		if err != nil {
			return nil, withCode(exitUsage, fmt.Errorf("the method %s: %w", m.Kind, err))
		}
		out[f.name] = value
	}
	return out, nil
}

// textOf returns the text of a flag, or "" if it is not set.
func (c *optionFlags) textOf(name string) string {
	if f := c.flagNamed(name); f != nil && f.isSet {
		return f.text
	}
	return ""
}
