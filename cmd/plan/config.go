package main

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"github.com/spf13/viper"

	"inferplan/engine/models"
	"inferplan/engine/ort"
	"inferplan/engine/worker"
	"inferplan/formats/document"
)

// loadConfig sets flags that the command line did not set: first from INFERPLAN_<FLAG>, then from the configuration
// file, where the verb's section comes before the top level. A key that is no flag of any verb is an error. It also
// stores in g.unknown a line for each INFERPLAN_ variable that nothing reads.
func loadConfig(cmd *cobra.Command, g *globalFlags) error {
	v := viper.New()
	path := g.config
	if path == "" {
		path = os.Getenv("INFERPLAN_CONFIG")
	}
	explicit := path != ""
	if !explicit {
		path = "inferplan.yaml"
	}
	v.SetConfigFile(path)
	if filepath.Ext(path) == "" {
		v.SetConfigType("yaml")
	}
	info, statErr := os.Stat(path)
	if statErr != nil && (explicit || !errors.Is(statErr, fs.ErrNotExist)) {
		return usageErrorf("reading configuration: %w", statErr)
	}
	if statErr != nil {
		// without a file there is no configuration
	} else if info.IsDir() {
		return usageErrorf("reading configuration %s: found a folder, expected a file", path)
	} else if err := v.ReadInConfig(); err != nil {
		return configError(path, err)
	} else if err := checkKeys(cmd.Root(), v, path); err != nil {
		return err
	}
	g.unknown = unknownVariables(cmd.Root(), os.Environ())
	// The environment has its own viper: in a common one, a verb's section of the file would hide the shorter
	// variable.
	env := viper.New()
	env.SetEnvPrefix("INFERPLAN")
	env.SetEnvKeyReplacer(strings.NewReplacer("-", "_", ".", "_"))
	env.AutomaticEnv()

	// Set every flag that was not typed, from the most specific key that is set. The first error ends it.
	var firstErr error
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if f.Changed || f.Name == "help" || f.Name == "config" || f.Name == "version" || firstErr != nil {
			return
		}
		for _, key := range keysOf(cmd, f.Name) {
			if env.IsSet(key) {
				firstErr = setFlag(cmd, f.Name, env.Get(key), variableName(key))
				return
			}
		}
		for _, key := range keysOf(cmd, f.Name) {
			if v.IsSet(key) {
				firstErr = setFlag(cmd, f.Name, v.Get(key), path+": "+key)
				return
			}
		}
	})
	return firstErr
}

// keysOf returns the keys that a flag of a verb may have, the most specific first: import.blocks.models,
// import.models, models. A key with an old name of the flag counts, too.
func keysOf(cmd *cobra.Command, flag string) []string {
	var verbs []string
	for c := cmd; c.HasParent(); c = c.Parent() {
		verbs = append([]string{c.Name()}, verbs...)
	}
	var keys []string
	for n := len(verbs); n >= 0; n-- {
		for _, name := range append([]string{flag}, oldNamesOf(cmd, flag)...) {
			keys = append(keys, strings.Join(append(slices.Clone(verbs[:n]), name), "."))
		}
	}
	return keys
}

// setFlag sets a flag to a value of the environment or the configuration file. source names the value's place, for
// errors.
func setFlag(cmd *cobra.Command, flag string, value any, source string) error {
	text := flagText(value)
	if c, ok := cmd.Flags().Lookup(flag).Value.(*optionFlag); ok {
		if err := c.parseError(text); err != nil {
			return usageErrorf("%s: %w", source, err)
		}
	}
	if err := cmd.Flags().Set(flag, text); err != nil {
		return usageErrorf("%s: %w", source, flagError(err))
	}
	return nil
}

// lineInError matches the number of a line in errors of parsers.
var lineInError = regexp.MustCompile(`line (\d+)`)

// configError returns the error for a configuration file that cannot be read or parsed.
func configError(path string, err error) error {
	if _, isParseError := errors.AsType[viper.ConfigParseError](err); !isParseError {
		return usageErrorf("reading configuration %s: %w", path, err)
	}
	if match := lineInError.FindStringSubmatch(err.Error()); match != nil {
		path += ":" + match[1]
	}
	return usageErrorf("reading configuration %s: found text that cannot be parsed, expected a flag's name and its value a line, such as load: 0.8, or flags under the name of their verb", path)
}

// flagText returns a configuration value as it would be typed on the command line.
func flagText(value any) string {
	list, ok := value.([]any)
	if !ok {
		return fmt.Sprint(value)
	}
	parts := make([]string, len(list))
	for i, x := range list {
		parts[i] = fmt.Sprint(x)
	}
	return strings.Join(parts, ",")
}

// variableName returns the environment variable of a configuration key.
func variableName(key string) string {
	return "INFERPLAN_" + strings.ToUpper(strings.NewReplacer("-", "_", ".", "_").Replace(key))
}

// otherVariables are variables of the environment that are not flags: of this program and its workers, then of its
// tests and tools.
var otherVariables = []string{
	"INFERPLAN_CONFIG", ort.LibraryEnv, models.DirEnv, models.DigitsEnv, worker.ReplayMemoryEnv, relocatedEnv,
	"INFERPLAN_DATA", "INFERPLAN_LONG", "INFERPLAN_ALL_REFERENCES", "INFERPLAN_LLM", "INFERPLAN_OPENAI", "INFERPLAN_CHROMIUM", "INFERPLAN_HIGHS_PREFIX", "INFERPLAN_LOCAL_TOOLS",
}

// unknownVariables returns a line for each variable of the environment that nothing reads, with the similar name
// that was probably meant.
func unknownVariables(root *cobra.Command, environ []string) (out []string) {
	knownNames := slices.Clone(otherVariables)
	for _, key := range allKeys(root) {
		knownNames = append(knownNames, variableName(key))
	}
	for _, kv := range environ {
		name, value, _ := strings.Cut(kv, "=")
		if !strings.HasPrefix(name, "INFERPLAN_") || strings.HasPrefix(name, "INFERPLAN_TEST_") || value == "" || slices.Contains(knownNames, name) {
			continue
		}
		text := name + ": found a variable that is no flag's; it does nothing"
		if similarName := document.Nearest(name, knownNames); similarName != "" {
			text += ": did you mean " + similarName + "?"
		}
		out = append(out, text)
	}
	return out
}

// checkKeys refuses a configuration key that nothing reads.
func checkKeys(root *cobra.Command, v *viper.Viper, path string) error {
	allKeys := allKeys(root)
	keys := v.AllKeys()
	slices.Sort(keys)
	for _, key := range keys {
		if _, isKnown := slices.BinarySearch(allKeys, key); !isKnown {
			return usageErrorf("%s: %s: found a key that is no flag; expected a flag's name, or a verb with its flags under it%s", path, key, suggestion(key, allKeys))
		}
	}
	return nil
}

// allKeys returns the keys of the flags of all verbs, sorted.
func allKeys(root *cobra.Command) []string {
	seenKeys := map[string]bool{}
	var visit func(cmd *cobra.Command)
	visit = func(cmd *cobra.Command) {
		add := func(f *pflag.Flag) {
			for _, key := range keysOf(cmd, f.Name) {
				seenKeys[key] = true
			}
		}
		cmd.Flags().VisitAll(add)
		root.PersistentFlags().VisitAll(add)
		for _, c := range cmd.Commands() {
			visit(c)
		}
	}
	visit(root)
	return slices.Sorted(maps.Keys(seenKeys))
}
