package diff

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"inferplan/formats"
)

// planChanges are the changes of one comparison.
type planChanges []Change

// summary says on one line what a switch from plan a to plan b means: pipelines, devices that load other blocks,
// the objective, and changed requests to the planner.
func (list planChanges) summary(a, b *formats.Plan) string {
	if len(list) == 0 {
		return ""
	}
	var parts []string
	if addedModels, removedModels := list.countText("pipelines", Added), list.countText("pipelines", Removed); addedModels+removedModels > 0 {
		parts = append(parts, fmt.Sprintf("%s added, %d removed", plural(addedModels, "pipeline"), removedModels))
	}
	if reloadedDevices, usedDevices := countReloads(a, b); usedDevices > 0 {
		parts = append(parts, fmt.Sprintf("%d of %s load other blocks", reloadedDevices, plural(usedDevices, "device")))
	}
	if x, y := a.Objective, b.Objective; x.Name == y.Name && x.Value != y.Value && x.Value != 0 {
		parts = append(parts, fmt.Sprintf("%s %s", y.Name, percent((y.Value-x.Value)/x.Value)))
	}
	if modelNames := append(list.contents(), list.names("options", "devices", "arrivals")...); len(modelNames) > 0 {
		parts = append(parts, "asked with another "+strings.Join(modelNames, ", "))
	}
	return strings.Join(parts, "; ")
}

// countText returns how many entries of a section were added and removed.
func (list planChanges) countText(section, noun string) (n int) {
	for i := range list {
		if c := &list[i]; c.Section == section && c.Kind == noun {
			n++
		}
	}
	return n
}

// contents returns the inputs whose content changed.
func (list planChanges) contents() (out []string) {
	for i := range list {
		if c := &list[i]; c.Section == "inputs" && c.Kind == Changed {
			if role, ok := strings.CutSuffix(c.Path, " content"); ok {
				out = append(out, role)
			}
		}
	}
	return out
}

// names returns the first few changed names in sections that are about requests to the planner, and not about the
// devices used.
func (list planChanges) names(sections ...string) (out []string) {
	for i := range list {
		c := &list[i]
		if !slices.Contains(sections, c.Section) || c.Section == "devices" && !strings.HasPrefix(c.Path, "pool ") {
			continue
		}
		if !slices.Contains(out, c.Path) {
			out = append(out, c.Path)
		}
	}
	const maxNames = 4
	if len(out) > maxNames {
		out = append(out[:maxNames:maxNames], fmt.Sprintf("and %d more", len(out)-maxNames))
	}
	return out
}

// countReloads returns how many devices hold other blocks in b than in a, and how many either plan uses.
func countReloads(a, b *formats.Plan) (reloadedDevices, usedDevices int) {
	oldModels, newModels := modelsByDevice(a), modelsByDevice(b)
	allUnits := maps.Clone(oldModels)
	maps.Copy(allUnits, newModels)
	for device := range allUnits {
		if oldModels[device] != newModels[device] {
			reloadedDevices++
		}
	}
	return reloadedDevices, len(allUnits)
}

// deviceUnit is one device of a kind.
type deviceUnit struct {
	kind string
	n    int
}

// modelsByDevice describes what each device holds: models, blocks and shares, as text.
func modelsByDevice(p *formats.Plan) map[deviceUnit]string {
	parts := map[deviceUnit][]string{}
	for s := range p.Stages() {
		for _, placement := range s.Placement {
			for n := range placement.DeviceCount() {
				u := deviceUnit{s.Device, placement.FirstDevice + n}
				parts[u] = append(parts[u], fmt.Sprintf("%s %s/%d", s.Deployed.Model, blocks(s.Stage), s.Share))
			}
		}
	}
	out := map[deviceUnit]string{}
	for u, list := range parts {
		slices.Sort(list)
		out[u] = strings.Join(slices.Compact(list), ", ")
	}
	return out
}

// plural returns "1 noun", or the count n with an s behind the noun.
func plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
