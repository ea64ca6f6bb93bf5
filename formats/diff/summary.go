package diff

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"inferplan/formats"
)

// planChanges are the changes of one comparison.
type changes []Change

// summary says on one line what a switch from plan a to plan b means: pipelines, devices that load other blocks,
// the objective, and changed requests to the planner.
func (list changes) summary(a, b *formats.Plan) string {
	if len(list) == 0 {
		return ""
	}
	var parts []string
	if added, removed := list.counted("pipelines", Added), list.counted("pipelines", Removed); added+removed > 0 {
		parts = append(parts, fmt.Sprintf("%s added, %d removed", plural(added, "pipeline"), removed))
	}
	if reloaded, used := reloads(a, b); used > 0 {
		parts = append(parts, fmt.Sprintf("%d of %s load other blocks", reloaded, plural(used, "device")))
	}
	if x, y := a.Objective, b.Objective; x.Name == y.Name && x.Value != y.Value && x.Value != 0 {
		parts = append(parts, fmt.Sprintf("%s %s", y.Name, percent((y.Value-x.Value)/x.Value)))
	}
	if asked := append(list.contents(), list.names("options", "devices", "arrivals")...); len(asked) > 0 {
		parts = append(parts, "asked with another "+strings.Join(asked, ", "))
	}
	return strings.Join(parts, "; ")
}

// countText returns how many entries of a section were added and removed.
func (list changes) counted(section, what string) (n int) {
	for i := range list {
		if c := &list[i]; c.Section == section && c.What == what {
			n++
		}
	}
	return n
}

// contents returns the inputs whose content changed.
func (list changes) contents() (out []string) {
	for i := range list {
		if c := &list[i]; c.Section == "inputs" && c.What == Changed {
			if role, ok := strings.CutSuffix(c.Path, " content"); ok {
				out = append(out, role)
			}
		}
	}
	return out
}

// names returns the first few changed names in sections that are about requests to the planner, and not about the
// devices used.
func (list changes) names(sections ...string) (out []string) {
	for i := range list {
		c := &list[i]
		if !slices.Contains(sections, c.Section) || c.Section == "devices" && !strings.HasPrefix(c.Path, "pool ") {
			continue
		}
		if !slices.Contains(out, c.Path) {
			out = append(out, c.Path)
		}
	}
	const most = 4
	if len(out) > most {
		out = append(out[:most:most], fmt.Sprintf("and %d more", len(out)-most))
	}
	return out
}

// countReloads returns how many devices hold other blocks in b than in a, and how many either plan uses.
func reloads(a, b *formats.Plan) (reloaded, used int) {
	was, is := held(a), held(b)
	all := maps.Clone(was)
	maps.Copy(all, is)
	for device := range all {
		if was[device] != is[device] {
			reloaded++
		}
	}
	return reloaded, len(all)
}

// deviceUnit is one device of a kind.
type unit struct {
	kind string
	n    int
}

// modelsByDevice describes what each device holds: models, blocks and shares, as text.
func held(p *formats.Plan) map[unit]string {
	parts := map[unit][]string{}
	for s := range p.Stages() {
		for _, at := range s.Placement {
			for n := range at.Count() {
				u := unit{s.Device, at.First + n}
				parts[u] = append(parts[u], fmt.Sprintf("%s %s/%d", s.Deployed.Model, blocks(s.Stage), s.Share))
			}
		}
	}
	out := map[unit]string{}
	for u, list := range parts {
		slices.Sort(list)
		out[u] = strings.Join(slices.Compact(list), ", ")
	}
	return out
}

func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
