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

// summary returns on one line what a switch from plan a to plan b means: the rate that simulated runs certified of all
// models, pipelines, devices that have to load other blocks, the objective if it was found in the same way, and what
// the planner was asked differently.
func (list planChanges) summary(a, b *formats.Plan) string {
	if len(list) == 0 {
		return ""
	}
	var parts []string
	switch x, y := certifiedRate(a), certifiedRate(b); {
	case x == nil && y == nil:
	case x == nil:
		parts = append(parts, "only the second plan is certified")
	case y == nil:
		parts = append(parts, "only the first plan is certified")
	case *x != *y && *x > 0:
		parts = append(parts, fmt.Sprintf("certified %s -> %s (%s)", figureText(*x, "rps"), figureText(*y, "rps"), percent((*y-*x) / *x)))
	}
	if added, removed := list.countChanges("pipelines", Added), list.countChanges("pipelines", Removed); added+removed > 0 {
		parts = append(parts, fmt.Sprintf("%s added, %d removed", plural(added, "pipeline"), removed))
	}
	if reloadedDevices, freedDevices, usedDevices := countReloads(a, b); usedDevices > 0 {
		text := fmt.Sprintf("%d of %s load other blocks", reloadedDevices, plural(usedDevices, "device"))
		if freedDevices > 0 {
			text += fmt.Sprintf(", %d become free", freedDevices)
		}
		parts = append(parts, text)
	}
	if x, y := a.Objective, b.Objective; x.Name == y.Name && x.Basis == y.Basis && x.Value != y.Value && x.Value != 0 {
		name := y.Name
		if y.Basis != formats.BasisSimulation {
			name = "planned " + name
		}
		parts = append(parts, fmt.Sprintf("%s %s", name, percent((y.Value-x.Value)/x.Value)))
	}
	if changedInputs := append(list.contents(), list.names("options", "devices", "arrivals")...); len(changedInputs) > 0 {
		parts = append(parts, "asked with another "+strings.Join(changedInputs, ", "))
	}
	return strings.Join(parts, "; ")
}

// certifiedRate returns the rate of all models together that simulated runs of a plan certified, or nil without a
// certificate.
func certifiedRate(p *formats.Plan) *float64 {
	if p.Certificate == nil {
		return nil
	}
	sum := 0.0
	for i := range p.Certificate.Models {
		sum += p.Certificate.Models[i].RPS
	}
	return &sum
}

// countChanges returns how many changes of one kind, such as Added, a section has.
func (list planChanges) countChanges(section, changeKind string) (n int) {
	for i := range list {
		if c := &list[i]; c.Section == section && c.Kind == changeKind {
			n++
		}
	}
	return n
}

// contents returns the roles of the input files whose content changed, such as profile.
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

// names returns the first few changed names in sections that are about what the planner was asked. In the section
// devices these are the pools, and not how many devices are used.
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

// countReloads returns how many devices load in plan b what they do not hold in a, how many of a hold nothing in b, and
// how many either plan uses. A device that only unloads counts as none of the first.
func countReloads(a, b *formats.Plan) (reloadedDevices, freedDevices, usedDevices int) {
	oldContents, newContents := contentsByDevice(a), contentsByDevice(b)
	allDevices := maps.Clone(oldContents)
	maps.Copy(allDevices, newContents)
	for device := range allDevices {
		switch {
		case len(newContents[device]) == 0:
			freedDevices++
		case !oldContents[device].Covers(newContents[device]):
			reloadedDevices++
		}
	}
	return reloadedDevices, freedDevices, len(allDevices)
}

// deviceUnit is one device of a kind.
type deviceUnit struct {
	kind string
	n    int
}

// contentsByDevice returns what each device of a plan holds, without idle devices.
func contentsByDevice(p *formats.Plan) map[deviceUnit]formats.DeviceContent {
	contents := map[deviceUnit]formats.DeviceContent{}
	for k, held := range p.HeldByDevice() {
		for n := range held {
			if len(held[n]) > 0 {
				contents[deviceUnit{p.Pools[k].Device, n}] = held[n]
			}
		}
	}
	return contents
}

// plural returns "1 noun", or the count n with an s behind the noun.
func plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
