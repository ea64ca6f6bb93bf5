package pipeline

import (
	"fmt"
	"io"
	"slices"
	"strconv"

	"inferplan/formats"
	"inferplan/formats/document"
)

// module is an entry of a list.
type module struct {
	Name string `json:"name"`
	ID   int    `json:"id"`
	Pres []int  `json:"pres,omitempty"`
	Subs []int  `json:"subs,omitempty"`
}

type modules []module

// Validate returns an error if the list of modules in a file is empty or too long, a name or id is wrong, or the
// modules do not make a graph.
func (list modules) Validate() error {
	if len(list) == 0 || len(list) > formats.MaxModules {
		return &document.Error{Found: fmt.Sprintf("%d modules", len(list)), Expected: fmt.Sprintf("1 to %d", formats.MaxModules)}
	}
	ids := map[int]bool{}
	for i, m := range list {
		switch {
		case m.Name == "":
			return findingAt(i, "name", "nothing", "the name of a module")
		case ids[m.ID]:
			return findingAt(i, "id", strconv.Itoa(m.ID)+" a second time", "each id once")
		}
		ids[m.ID] = true
	}
	_, err := list.application()
	return err
}

// findingAt returns a finding about a field of the module at index i.
func findingAt(i int, field, found, expected string) error {
	return &document.Error{Path: fmt.Sprintf("[%d].%s", i, field), Found: found, Expected: expected}
}

// maxBytes bounds a file.
const maxBytes = 1 << 20

// Workload makes a workload of one application.
func Workload(a formats.Application) *formats.Workload {
	return &formats.Workload{Format: formats.FormatWorkload, Section: formats.Applications{a}}
}

// Read reads an application from a JSON list of modules, each with the modules before it (pres) and behind it
// (subs). Modules keep the order of the list, except that the one without pres, where requests enter, comes first.
// The model of a module is the module's name in the file. Its own name is the same if no other module has that
// name, and otherwise includes its id.
func Read(r io.Reader, name string) (formats.Application, error) {
	var list modules
	if err := document.ReadJSON(r, name, "a list of modules {name, id, pres, subs}", maxBytes, document.SomeFields, &list); err != nil {
		return formats.Application{}, err
	}
	return list.application()
}

// application returns the modules as an application. Names and ids were checked. pres and subs, the modules before
// and behind one, must agree, and one module has nothing before it: requests enter there.
func (list modules) application() (out formats.Application, err error) {
	// Find the modules by id. Names that occur more than once get the id added.
	indexByID, names := map[int]int{}, map[string]int{}
	for i, m := range list {
		indexByID[m.ID] = i
		names[m.Name]++
	}
	name := func(m module) string {
		if names[m.Name] > 1 {
			return fmt.Sprintf("%s-%d", m.Name, m.ID)
		}
		return m.Name
	}
	for i, m := range list {
		module := formats.Module{Name: name(m), Model: m.Name}
		for k, id := range m.Pres {
			p, ok := indexByID[id]
			if !ok || !slices.Contains(list[p].Subs, m.ID) {
				return out, findingAt(i, fmt.Sprintf("pres[%d]", k), strconv.Itoa(id), "the id of a module whose subs have "+strconv.Itoa(m.ID))
			}
			module.Predecessors = append(module.Predecessors, name(list[p]))
		}
		for k, id := range m.Subs {
			if s, ok := indexByID[id]; !ok || !slices.Contains(list[s].Pres, m.ID) {
				return out, findingAt(i, fmt.Sprintf("subs[%d]", k), strconv.Itoa(id), "the id of a module whose pres have "+strconv.Itoa(m.ID))
			}
		}
		if len(m.Pres) > 0 {
			out.Modules = append(out.Modules, module)
			continue
		}
		if len(out.Modules) > 0 && len(out.Modules[0].Predecessors) == 0 {
			return out, findingAt(i, "pres", "an empty list, as of "+out.Modules[0].Name, "one module where requests enter")
		}
		out.Modules = slices.Insert(out.Modules, 0, module)
	}
	return out, nil
}
