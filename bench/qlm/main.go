package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"

	"github.com/olekukonko/tablewriter"
)

// figure is one claim beside what was measured.
type figure struct {
	Claim    string      `json:"claim"`
	Source   string      `json:"source"`
	Asked    string      `json:"asked"`
	Measured float64     `json:"measured"`
	Interval *[2]float64 `json:"interval"`
	Unit     string      `json:"unit"`
	Holds    any         `json:"holds"` // true, false or "partly"; null where nothing was asked
	Command  string      `json:"command"`
}

// part is something that the instrument measures.
type part struct {
	name string
	make func(out io.Writer, data string) ([]figure, error)
}

var parts = []part{
	{"instance", instancePart},
}

func main() {
	if err := run(os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "qlm:", err)
		os.Exit(1)
	}
}

func run(args []string, out io.Writer) error {
	flags := flag.NewFlagSet("qlm", flag.ContinueOnError)
	data := flags.String("data", "../shared/data", "folder of the measurements and traces")
	file := flags.String("o", "", "figures.json to write (default: none)")
	if err := flags.Parse(args); err != nil {
		return err
	}
	wanted := flags.Args()
	for _, name := range wanted {
		if !slices.ContainsFunc(parts, func(p part) bool { return p.name == name }) {
			return fmt.Errorf("part %q: unknown", name)
		}
	}
	var all []figure
	for _, p := range parts {
		if len(wanted) > 0 && !slices.Contains(wanted, p.name) {
			continue
		}
		figures, err := p.make(out, *data)
		if err != nil {
			return fmt.Errorf("part %s: %w", p.name, err)
		}
		all = append(all, figures...)
	}
	if *file == "" {
		return nil
	}
	return store(*file, all)
}

// store writes figures into a file, in the place of those of the same claims.
func store(path string, figures []figure) error {
	var old []figure
	text, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(text, &old)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("reading the figures: %w", err)
	}
	for _, f := range figures {
		if at := slices.IndexFunc(old, func(o figure) bool { return o.Claim == f.Claim }); at >= 0 {
			old[at] = f
		} else {
			old = append(old, f)
		}
	}
	if text, err = json.MarshalIndent(old, "", "  "); err != nil {
		return fmt.Errorf("writing the figures: %w", err)
	}
	return os.WriteFile(path, append(text, '\n'), 0o644)
}

// show writes a table.
func show(out io.Writer, title string, columns []string, rows [][]string) error {
	fmt.Fprintf(out, "\n%s\n", title)
	t := tablewriter.NewTable(out)
	t.Header(columns)
	if err := t.Bulk(rows); err != nil {
		return err
	}
	return t.Render()
}

func percent(x float64) string { return strings.TrimPrefix(fmt.Sprintf("%+.2f %%", 100*x), "+") }
