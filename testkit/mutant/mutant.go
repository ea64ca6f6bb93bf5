package mutant

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
)

// Problem is a profile, a cluster and a workload by role, as JSON has them.
type Problem map[string]any

// Problems reads the small problems below testdata/kinds, by the name of their folder.
// root is the folder of the repository.
func Problems(root string) (map[string]Problem, error) {
	paths, err := filepath.Glob(filepath.Join(root, "testdata/kinds/*/*.json"))
	if err != nil {
		return nil, err
	}
	out := map[string]Problem{}
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		var tree any
		if err := json.Unmarshal(text, &tree); err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		name := filepath.Base(filepath.Dir(path))
		if out[name] == nil {
			out[name] = Problem{}
		}
		out[name][filepath.Base(path[:len(path)-len(".json")])] = tree
	}
	return out, nil
}

// place is an entry of an object or of a list.
type place struct {
	object map[string]any
	key    string
	list   *[]any // of parent, which holds it
	at     int
	set    func(any) // puts another list in the place of the entry's list
}

// places lists all entries of a tree, in an order that does not change.
func places(tree any, set func(any), visit func(p place, value any)) {
	switch x := tree.(type) {
	case map[string]any:
		for _, key := range slices.Sorted(maps.Keys(x)) {
			visit(place{object: x, key: key}, x[key])
			places(x[key], func(v any) { x[key] = v }, visit)
		}
	case []any:
		for i := range x {
			visit(place{list: &x, at: i, set: set}, x[i])
			places(x[i], func(v any) { x[i] = v }, visit)
		}
	}
}

// Copy returns a copy of a tree that shares nothing with it.
func Copy(tree any) any {
	switch x := tree.(type) {
	case map[string]any:
		out := make(map[string]any, len(x))
		for k, v := range x {
			out[k] = Copy(v)
		}
		return out
	case []any:
		out := make([]any, len(x))
		for i := range x {
			out[i] = Copy(x[i])
		}
		return out
	}
	return tree
}

// Draw returns a copy of a tree that differs in one to three places, and says how.
func Draw(rng *rand.Rand, tree any) (any, []string) {
	root := map[string]any{"": Copy(tree)}
	var how []string
	for range 1 + rng.IntN(3) {
		how = append(how, change(rng, root))
	}
	return root[""], how
}

// change changes one place below root and says how.
func change(rng *rand.Rand, root map[string]any) string {
	var entries []place
	var values []any
	places(root[""], func(v any) { root[""] = v }, func(p place, v any) {
		entries, values = append(entries, p), append(values, v)
	})
	if len(entries) == 0 {
		return "nothing to change"
	}
	at := rng.IntN(len(entries))
	p, v := entries[at], values[at]
	where := p.key
	if p.list != nil {
		where = fmt.Sprintf("[%d]", p.at)
	}
	switch rng.IntN(8) {
	case 4, 5:
		if x, ok := v.(string); ok && x != "" {
			for i := range entries {
				if values[i] == v {
					entries[i].put(x + "2")
				}
			}
			return fmt.Sprintf("%q everywhere %q", x, x+"2")
		}
	case 0, 1:
		p.remove()
		return "without " + where
	case 2:
		if p.list != nil {
			p.set(slices.Insert(slices.Clone(*p.list), p.at, Copy(v)))
			return "twice " + where
		}
	case 3:
		if p.list != nil {
			other := renamed(rng, Copy(v))
			p.set(append(slices.Clone(*p.list), other))
			return fmt.Sprintf("one more, %v, like %s", name(other), where)
		}
	}
	switch x := v.(type) {
	case string:
		others := []string{x + "x", "", "none"}
		for i := range values {
			if s, ok := values[i].(string); ok {
				others = append(others, s)
			}
		}
		to := others[rng.IntN(len(others))]
		p.put(to)
		return fmt.Sprintf("%s %q for %q", where, to, x)
	case float64:
		to := []float64{0, 1, -x, x + 1, x - 1, 2 * x, x / 2, 10 * x, x / 10}[rng.IntN(9)]
		p.put(to)
		return fmt.Sprintf("%s %g for %g", where, to, x)
	case bool:
		p.put(!x)
		return fmt.Sprintf("%s %v", where, !x)
	case []any:
		p.put([]any{})
		return where + " empty"
	}
	p.remove()
	return "without " + where
}

func (p *place) remove() {
	if p.list != nil {
		p.set(slices.Delete(slices.Clone(*p.list), p.at, p.at+1))
		return
	}
	delete(p.object, p.key)
}

func (p *place) put(v any) {
	if p.list != nil {
		(*p.list)[p.at] = v
		return
	}
	p.object[p.key] = v
}

// naming are the fields that name what an object is about, the first that is there.
var naming = []string{"name", "model", "class", "device", "to"}

// name returns the name of an object; another value is its own name.
func name(v any) any {
	if object, ok := v.(map[string]any); ok {
		for _, field := range naming {
			if s, ok := object[field].(string); ok {
				return s
			}
		}
	}
	return v
}

// renamed gives an object, or a text, another name.
func renamed(rng *rand.Rand, v any) any {
	suffix := fmt.Sprint(rng.IntN(9))
	switch x := v.(type) {
	case string:
		return x + suffix
	case map[string]any:
		for _, field := range naming {
			if s, ok := x[field].(string); ok {
				x[field] = s + suffix
				break
			}
		}
	}
	return v
}
