package figures

import (
	"flag"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// plain is a value of a flag that neither a shell nor make reads as anything else.
var plain = regexp.MustCompile(`^[\w./,:=+^%@-]+$`)

// aside are flags that say where things are and how a run goes, not what is measured.
var aside = strings.Fields("apart cost cpuprofile data dir doc family figures fresh jobs json keep kept-by llama o patience picture plan plots results root scratch steps third-party v verify workers")

// Command returns how a part of a run is measured again: the name of the instrument in scripts/bench.sh, the flags
// of the part (names and values in turns) and those that were given with other values than by default.
func Command(f *flag.FlagSet, name string, part ...string) string {
	var flags []string
	said := map[string]bool{}
	add := func(name, value string) {
		if !plain.MatchString(value) {
			value = `"` + strings.ReplaceAll(value, "$", "$$") + `"`
		}
		said[name], flags = true, append(flags, "-"+name+" "+value)
	}
	for i := 0; i < len(part); i += 2 {
		add(part[i], part[i+1])
	}
	f.Visit(func(given *flag.Flag) {
		value := given.Value.String()
		if value == given.DefValue || slices.Contains(aside, given.Name) || said[given.Name] {
			return
		}
		if b, ok := given.Value.(interface{ IsBoolFlag() bool }); !ok || !b.IsBoolFlag() {
			add(given.Name, value)
		} else if value == "true" {
			flags = append(flags, "-"+given.Name)
		} else {
			flags = append(flags, "-"+given.Name+"="+value)
		}
	})
	if flags == nil {
		return "make bench NAME=" + name
	}
	return fmt.Sprintf("make bench NAME=%s ARGS='%s'", name, strings.Join(flags, " "))
}
