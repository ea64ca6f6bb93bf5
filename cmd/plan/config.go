package main

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"github.com/spf13/viper"
)

// loadConfig fills flags that the command line left alone, first from
// INFERPLAN_<FLAG>, then from the configuration file: the verb's section
// before the top level. A key that is no flag of any verb is an error.
func loadConfig(cmd *cobra.Command, g *globals) error {
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
	if err := v.ReadInConfig(); err != nil {
		if explicit || !errors.Is(err, os.ErrNotExist) {
			return usageErrorf("reading configuration %s: %w", path, err)
		}
	} else if err := knownKeys(cmd.Root(), v, path); err != nil {
		return err
	}
	// A viper of its own for the environment: inside one viper a verb's section
	// of the file would hide the shorter variable.
	env := viper.New()
	env.SetEnvPrefix("INFERPLAN")
	env.SetEnvKeyReplacer(strings.NewReplacer("-", "_", ".", "_"))
	env.AutomaticEnv()

	var first error
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if f.Changed || f.Name == "help" || f.Name == "config" || first != nil {
			return
		}
		for _, from := range []struct {
			name   string
			values *viper.Viper
		}{{"environment (INFERPLAN_...)", env}, {path, v}} {
			for _, key := range []string{cmd.Name() + "." + f.Name, f.Name} {
				if !from.values.IsSet(key) {
					continue
				}
				if err := cmd.Flags().Set(f.Name, flagText(from.values.Get(key))); err != nil {
					first = usageErrorf("%s: %s: %w", from.name, key, err)
				}
				return
			}
		}
	})
	return first
}

// flagText writes a configuration value as it would stand on the command line.
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

// knownKeys refuses a configuration key that nothing reads.
func knownKeys(root *cobra.Command, v *viper.Viper, path string) error {
	var all []string
	sections := map[string][]string{}
	for _, c := range root.Commands() {
		var names []string
		visit := func(f *pflag.Flag) { names = append(names, f.Name) }
		c.Flags().VisitAll(visit)
		root.PersistentFlags().VisitAll(visit)
		sections[c.Name()] = names
		all = append(all, names...)
	}
	keys := v.AllKeys()
	slices.Sort(keys)
	for _, key := range keys {
		section, name, nested := strings.Cut(key, ".")
		if known := sections[section]; nested && known != nil {
			if !slices.Contains(known, name) {
				return usageErrorf("%s: %s: found a key that is no flag of 'plan %s'; see 'plan %s --help'", path, key, section, section)
			}
			continue
		}
		if nested || !slices.Contains(all, key) {
			return usageErrorf("%s: %s: found a key that is no flag of any verb; expected a flag's name, or a verb with flags under it", path, key)
		}
	}
	return nil
}
