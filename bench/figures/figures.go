package figures

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"

	"inferplan/formats/document"
)

// Figure is one measured number.
type Figure struct {
	Claim    string      `json:"claim"`
	Source   string      `json:"source"` // who claims or asks it
	Asked    string      `json:"asked"`  // as "at most 1.6"; empty or AskedShown: nothing was asked
	Measured float64     `json:"measured"`
	Interval *[2]float64 `json:"interval,omitempty"` // of several runs, or of confidence
	Unit     string      `json:"unit,omitempty"`
	Holds    Holds       `json:"holds"`
	Note     string      `json:"note,omitempty"` // the reading that was used, the reason why it falls short
	Command  string      `json:"command"`
	Commit   string      `json:"commit,omitempty"` // empty if it was measured before commits were noted
	Machine  string      `json:"machine,omitempty"`
}

// AskedShown stands for the limit of a figure that is only shown beside the claims of others: it has
// no verdict.
const AskedShown = "shown"

// Holds says whether what was asked holds: true, false or "partly" in the file; null
// where nothing was asked.
type Holds string

// The verdicts.
const (
	Yes    Holds = "yes"
	No     Holds = "no"
	Partly Holds = "partly"
)

// If is Yes or No.
func If(holds bool) Holds {
	if holds {
		return Yes
	}
	return No
}

// MarshalJSON writes true, false or "partly".
func (h Holds) MarshalJSON() ([]byte, error) {
	switch h {
	case Yes:
		return []byte("true"), nil
	case No:
		return []byte("false"), nil
	case Partly:
		return []byte(`"partly"`), nil
	case "":
		return []byte("null"), nil
	}
	return nil, fmt.Errorf("verdict %q: expected %s, %s or %s", string(h), Yes, No, Partly)
}

// UnmarshalJSON reads what MarshalJSON writes.
func (h *Holds) UnmarshalJSON(b []byte) error {
	for _, v := range []Holds{Yes, No, Partly, ""} {
		if text, err := v.MarshalJSON(); err == nil && string(text) == string(b) {
			*h = v
			return nil
		}
	}
	return fmt.Errorf("found %s, expected true, false or \"partly\"", b)
}

// Read reads a list; a file that is not there is an empty one.
func Read(path string) ([]Figure, error) {
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading figures: %w", err)
	}
	var list []Figure
	if err := json.Unmarshal(data, &list); err != nil {
		return nil, fmt.Errorf("reading figures: %s: %w", path, err)
	}
	return list, nil
}

// Put notes what a run of a command has measured in a file, with the commit and machine of
// now; a figure may name a command of its own. It takes the place of the earlier one with the
// same claim. Earlier figures of the same commands that were not measured now go; those of
// other commands stay. So a run puts all figures of a command at once.
func Put(path, command string, measured ...Figure) error {
	list, err := Read(path)
	if err != nil {
		return err
	}
	built, machine, err := here()
	if err != nil {
		return err
	}
	for i := range measured {
		f := &measured[i]
		f.Command, f.Commit, f.Machine = cmp.Or(f.Command, command), built, machine
		if f.Asked == AskedShown {
			f.Holds = ""
		}
	}
	list = slices.DeleteFunc(list, func(old Figure) bool {
		return slices.ContainsFunc(measured, func(f Figure) bool { return f.Command == old.Command }) &&
			!slices.ContainsFunc(measured, func(f Figure) bool { return f.Claim == old.Claim })
	})
	for _, f := range measured {
		if at := slices.IndexFunc(list, func(o Figure) bool { return o.Claim == f.Claim }); at >= 0 {
			list[at] = f
		} else {
			list = append(list, f)
		}
	}
	var data bytes.Buffer
	enc := json.NewEncoder(&data)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if err := enc.Encode(list); err != nil {
		return fmt.Errorf("writing figures: %w", err)
	}
	_, err = document.WriteBytes(path, data.Bytes(), document.Force(true))
	return err
}

// commit is the commit from which the running program was built, with -dirty where files differed
// from it: the linker's flag -X sets it (scripts/bench.sh).
var commit string

// here is the commit and the machine in words.
func here() (built, machine string, err error) {
	if built = commit; built == "" { // a test, or go run
		out, err := exec.Command("git", "describe", "--always", "--dirty", "--exclude=*", "--abbrev=10").Output()
		if err != nil {
			return "", "", fmt.Errorf("which commit is measured: %w", err)
		}
		built = strings.TrimSpace(string(out))
	}
	cpu := runtime.GOARCH
	if text, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		for line := range strings.Lines(string(text)) {
			if name, value, _ := strings.Cut(line, ":"); strings.TrimSpace(name) == "model name" {
				cpu = strings.TrimSpace(value)
				break
			}
		}
	}
	return built, fmt.Sprintf("%d cores of %s, %s", runtime.NumCPU(), cpu, runtime.Version()), nil
}
