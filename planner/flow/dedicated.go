package flow

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"inferplan/formats"
	"inferplan/formats/document"
)

// partition is a part of a cluster's pool whose devices run the same models. It begins at firstDevice of
// the pool.
type partition struct{ pool, first int }

// modelGroup is a group of models that have devices of their own together.
type group struct {
	models  []string
	devices []int // by pool
}

// deviceCount returns how many devices the group has.
func (g *group) all() (n int) {
	for _, devices := range g.devices {
		n += devices
	}
	return n
}

// dedicatedAuto is the value of the option dedicated with which simulation chooses the devices.
const simulated = "auto"

// maxGroupDevices limits the devices that a group may ask for, so that sums of them cannot overflow.
const mostDevices = 1_000_000

// parseGroups parses the value of the option dedicated: MODEL+MODEL=COUNT for each group, separated by
// commas. COUNT is a number of devices or, if the cluster has several kinds, N*DEVICE+N*DEVICE.
func parseGroups(text string, pools []formats.Pool) (list []group, err error) {
	for entry := range strings.SplitSeq(text, ",") {
		// Names before the =, counts per kind of devices after it.
		models, counts, ok := strings.Cut(entry, "=")
		if !ok {
			return nil, fmt.Errorf("%q has no =", entry)
		}
		g := group{models: strings.Split(models, "+"), devices: make([]int, len(pools))}
		for count := range strings.SplitSeq(counts, "+") {
			// Without a device, the number is of the only kind.
			number, device, named := strings.Cut(count, "*")
			k := 0
			if named {
				k = slices.IndexFunc(pools, func(p formats.Pool) bool { return p.Device == device })
			}
			n, err := strconv.Atoi(number)
			switch {
			case err != nil || n < 0 || n > mostDevices:
				return nil, fmt.Errorf("%q is no number of devices", number)
			case k < 0:
				return nil, fmt.Errorf("%q is no device of the cluster", device)
			case !named && len(pools) > 1:
				return nil, fmt.Errorf("%q does not say of which kind of devices", count)
			}
			g.devices[k] += n
		}
		if g.all() == 0 {
			return nil, fmt.Errorf("%q has no devices", entry)
		}
		list = append(list, g)
	}
	return list, nil
}

// groupsText returns groups in the form that parseGroups reads.
func groupsText(list []group, pools []formats.Pool) string {
	var entries []string
	for i := range list {
		var counts []string
		for k, n := range list[i].devices {
			switch {
			case n == 0:
			case len(pools) > 1:
				counts = append(counts, fmt.Sprintf("%d*%s", n, pools[k].Device))
			default:
				counts = append(counts, strconv.Itoa(n))
			}
		}
		entries = append(entries, strings.Join(list[i].models, "+")+"="+strings.Join(counts, "+"))
	}
	return strings.Join(entries, ",")
}

// withDedicatedDevices returns the problem with the devices divided between groups of models, as the option
// dedicated says. The other models have the rest. Each group's part of a pool is a partition, and counts as
// a kind of devices of its own.
func (w *workflowProblem) divided() (*workflowProblem, error) {
	text := w.in.Values.Word("dedicated")
	if text == "" || text == simulated {
		return w, nil
	}
	list, err := parseGroups(text, w.whole)
	if err == nil {
		err = w.fits(list)
	}
	if err != nil {
		return nil, &document.Error{Path: "--dedicated", Found: fmt.Sprintf("%q: %v", text, err), Expected: "models of the workflows with devices of the cluster, such as chat-7b=6,rewrite-1b+embedder=2"}
	}

	// Find the group of each service. The last group has the remaining models and devices.
	of, rest := make([]int, len(w.services)), group{devices: make([]int, len(w.whole))}
	for s := range w.services {
		of[s] = slices.IndexFunc(list, func(g group) bool { return slices.Contains(g.models, w.services[s].name) })
		if of[s] < 0 {
			of[s], rest.models = len(list), append(rest.models, w.services[s].name)
		}
	}
	for k := range w.whole {
		rest.devices[k] = w.whole[k].Count
		for i := range list {
			rest.devices[k] -= list[i].devices[k]
		}
	}
	list = append(list, rest)

	// Divide every pool between the groups.
	d := *w
	d.partitions, d.pools, d.prices, d.services = nil, nil, nil, slices.Clone(w.services)
	for s := range d.services {
		d.services[s].on = nil
	}
	for k := range w.whole {
		first := 0
		for i, g := range list {
			if n := g.devices[k]; n > 0 && len(g.models) > 0 {
				d.add(w, partition{k, first}, n, func(s int) bool { return of[s] == i })
				first += n
			}
		}
	}
	for s := range d.services {
		if !slices.ContainsFunc(d.services[s].on, func(on onKind) bool { return len(on.sizes) > 0 }) {
			return nil, &document.Error{Path: "--dedicated", Found: fmt.Sprintf("%q, which leaves %s no devices that run it", text, d.services[s].name), Expected: "devices for every model"}
		}
	}
	return &d, nil
}

// addPartition adds a partition with a number of devices. On it run those services that runsService returns
// true for.
func (w *workflowProblem) add(whole *workflowProblem, at partition, devices int, runs func(service int) bool) {
	pool := whole.whole[at.pool]
	pool.Count = devices
	w.partitions, w.pools, w.prices = append(w.partitions, at), append(w.pools, pool), append(w.prices, whole.prices[at.pool])
	for s := range w.services {
		on := onKind{}
		if runs(s) {
			on = whole.services[s].on[at.pool]
		}
		w.services[s].on = append(w.services[s].on, on)
	}
}

// checkGroups returns an error if a group names an unknown model, a model twice, or more devices than there
// are.
func (w *workflowProblem) fits(list []group) error {
	seen, taken := map[string]bool{}, make([]int, len(w.whole))
	for i := range list {
		for _, name := range list[i].models {
			if !slices.ContainsFunc(w.services, func(s service) bool { return s.name == name }) {
				return fmt.Errorf("no workflow asks for %q", name)
			}
			if seen[name] {
				return fmt.Errorf("%q is there twice", name)
			}
			seen[name] = true
		}
		for k, n := range list[i].devices {
			if taken[k] += n; taken[k] > w.whole[k].Count {
				return fmt.Errorf("the cluster has %d %s", w.whole[k].Count, w.whole[k].Device)
			}
		}
	}
	return nil
}

// drainsLanguageModel returns whether a language model shares a device with another model. It then has to
// finish its sequences (drain) before the other model runs.
func drains(deployment []formats.Deployed, modules []formats.FlowModule) bool {
	for i := range modules {
		if modules[i].Generation == nil {
			continue
		}
		for k := range deployment {
			if k != i && slices.ContainsFunc(deployment[i].Pipelines, func(a formats.Pipeline) bool {
				return slices.ContainsFunc(deployment[k].Pipelines, func(b formats.Pipeline) bool { return a.Stages[0].Meets(&b.Stages[0]) })
			}) {
				return true
			}
		}
	}
	return false
}
