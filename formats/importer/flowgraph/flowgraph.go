package flowgraph

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"

	"inferplan/formats"
)

// module is an entry of the list.
type module struct {
	Name string `json:"name"`
	ID   *int   `json:"id"`
	Pres []int  `json:"pres"`
	Subs []int  `json:"subs"`
}

// maxBytes bounds a file.
const maxBytes = 1 << 20

// Workload is the workload of one application.
func Workload(a formats.Application) *formats.Workload {
	return &formats.Workload{Format: formats.FormatWorkload, Section: formats.Applications{a}}
}

// Read reads a list of modules. The application has the order of the list, but
// for the module without pres, where requests enter, which comes first. A module
// has the name of the list as its model, and as its own name where no other has
// it, else with its id.
func Read(r io.Reader, name string) (formats.Application, error) {
	list, err := decode(r, name)
	if err != nil {
		return formats.Application{}, err
	}
	fail := func(i int, field, found, expected string) error {
		return &formats.Error{File: name, Path: fmt.Sprintf("[%d].%s", i, field), Found: found, Expected: expected}
	}
	at, names := map[int]int{}, map[string]int{}
	for i, m := range list {
		switch {
		case m.Name == "":
			return formats.Application{}, fail(i, "name", "nothing", "the name of a module")
		case m.ID == nil:
			return formats.Application{}, fail(i, "id", "nothing", "a whole number")
		}
		if _, twice := at[*m.ID]; twice {
			return formats.Application{}, fail(i, "id", strconv.Itoa(*m.ID)+" a second time", "each id once")
		}
		at[*m.ID] = i
		names[m.Name]++
	}
	var out formats.Application
	for i, m := range list {
		own := formats.Module{Name: m.Name, Model: m.Name}
		if names[m.Name] > 1 {
			own.Name = fmt.Sprintf("%s-%d", m.Name, *m.ID)
		}
		for k, id := range m.Pres {
			p, ok := at[id]
			if !ok || !slices.Contains(list[p].Subs, *m.ID) {
				return formats.Application{}, fail(i, fmt.Sprintf("pres[%d]", k), strconv.Itoa(id), "the id of a module whose subs have "+strconv.Itoa(*m.ID))
			}
			own.After = append(own.After, naming(list[p], names))
		}
		for k, id := range m.Subs {
			if s, ok := at[id]; !ok || !slices.Contains(list[s].Pres, *m.ID) {
				return formats.Application{}, fail(i, fmt.Sprintf("subs[%d]", k), strconv.Itoa(id), "the id of a module whose pres have "+strconv.Itoa(*m.ID))
			}
		}
		if len(m.Pres) > 0 {
			out.Modules = append(out.Modules, own)
			continue
		}
		if len(out.Modules) > 0 && len(out.Modules[0].After) == 0 {
			return formats.Application{}, fail(i, "pres", "an empty list, as of "+out.Modules[0].Name, "one module where requests enter")
		}
		out.Modules = slices.Insert(out.Modules, 0, own)
	}
	return out, nil
}

// naming is the name of a module in the application.
func naming(m module, names map[string]int) string {
	if names[m.Name] > 1 {
		return fmt.Sprintf("%s-%d", m.Name, *m.ID)
	}
	return m.Name
}

func decode(r io.Reader, name string) ([]module, error) {
	data, err := io.ReadAll(io.LimitReader(r, maxBytes+1))
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", name, err)
	}
	if len(data) > maxBytes {
		return nil, &formats.Error{File: name, Found: "more than 1 MiB", Expected: "a list of modules"}
	}
	var list []module
	if err := json.Unmarshal(data, &list); err != nil {
		e := &formats.Error{File: name, Found: err.Error(), Expected: "a list of modules {name, id, pres, subs}"}
		if bad, ok := errors.AsType[*json.SyntaxError](err); ok {
			e.Line, e.Column = position(data, bad.Offset)
		}
		return nil, e
	}
	if len(list) == 0 || len(list) > formats.MaxModules {
		return nil, &formats.Error{File: name, Found: fmt.Sprintf("%d modules", len(list)), Expected: fmt.Sprintf("1 to %d", formats.MaxModules)}
	}
	return list, nil
}

// position is the line and column of an offset.
func position(data []byte, offset int64) (line, column int) {
	line, column = 1, 1
	for _, c := range data[:min(int64(len(data)), max(0, offset-1))] {
		if column++; c == '\n' {
			line, column = line+1, 1
		}
	}
	return line, column
}
