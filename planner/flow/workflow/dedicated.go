package workflow

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"inferplan/formats"
	"inferplan/formats/document"
	"inferplan/planner/lists"
)

// partition is a part of a cluster's pool whose devices run the same models. It begins at firstDevice of
// the pool.
type partition struct{ pool, firstDevice int }

// ModelGroup is a group of models that have devices of their own together.
type ModelGroup struct {
	Models  []string
	Devices []int // by pool
}

// DeviceCount returns how many devices the group has.
func (g *ModelGroup) DeviceCount() int { return lists.Total(g.Devices) }

// DedicatedAuto is the value of the option dedicated with which simulation chooses the devices.
const DedicatedAuto = "auto"

// maxGroupDevices limits the devices that a group may ask for, so that sums of them cannot overflow.
const maxGroupDevices = 1_000_000

// parseGroups parses the value of the option dedicated, which gives groups of models devices of their own: MODEL+MODEL=COUNT for each
// group, separated by commas. COUNT is a number of devices or, if the cluster has several kinds, N*DEVICE+N*DEVICE. pools are those of
// the cluster, in whose order the groups have their devices.
func parseGroups(text string, pools []formats.Pool) (groups []ModelGroup, err error) {
	for entry := range strings.SplitSeq(text, ",") {
		// Names before the =, counts per kind of devices after it.
		models, counts, ok := strings.Cut(entry, "=")
		if !ok {
			return nil, fmt.Errorf("%q has no =", entry)
		}
		group := ModelGroup{Models: strings.Split(models, "+"), Devices: make([]int, len(pools))}
		for count := range strings.SplitSeq(counts, "+") {
			// Without a device, the number is of the only kind.
			number, device, hasKind := strings.Cut(count, "*")
			k := 0
			if hasKind {
				k = slices.IndexFunc(pools, func(p formats.Pool) bool { return p.Device == device })
			}
			n, err := strconv.Atoi(number)
			switch {
			case err != nil || n < 0 || n > maxGroupDevices:
				return nil, fmt.Errorf("%q is no number of devices", number)
			case k < 0:
				return nil, fmt.Errorf("%q is no device of the cluster", device)
			case !hasKind && len(pools) > 1:
				return nil, fmt.Errorf("%q does not say of which kind of devices", count)
			}
			group.Devices[k] += n
		}
		if group.DeviceCount() == 0 {
			return nil, fmt.Errorf("%q has no devices", entry)
		}
		groups = append(groups, group)
	}
	return groups, nil
}

// GroupsText returns groups in the form that parseGroups reads.
func GroupsText(groups []ModelGroup, pools []formats.Pool) string {
	var entries []string
	for i := range groups {
		var counts []string
		for k, n := range groups[i].Devices {
			switch {
			case n == 0:
			case len(pools) > 1:
				counts = append(counts, fmt.Sprintf("%d*%s", n, pools[k].Device))
			default:
				counts = append(counts, strconv.Itoa(n))
			}
		}
		entries = append(entries, strings.Join(groups[i].Models, "+")+"="+strings.Join(counts, "+"))
	}
	return strings.Join(entries, ",")
}

// withDedicatedDevices returns the problem with the devices divided between groups of models, as the option dedicated says, or the
// problem itself if the option names none. The models that the option does not name have the remaining devices. Each group's part of a
// pool is a partition (devices that run the same models), which counts as a kind of devices of its own. A model without devices is an
// error.
func (w *workflowProblem) withDedicatedDevices() (*workflowProblem, error) {
	text := w.input.Values.Word("dedicated")
	if text == "" || text == DedicatedAuto {
		return w, nil
	}
	groups, err := parseGroups(text, w.clusterPools)
	if err == nil {
		err = w.checkGroups(groups)
	}
	if err != nil {
		return nil, &document.Error{Path: "--dedicated", Found: fmt.Sprintf("%q: %v", text, err), Expected: "models of the workflows with devices of the cluster, such as chat-7b=6,rewrite-1b+embedder=2"}
	}

	// Find the group of each service. The last group has the remaining models and devices.
	groupOf, remainder := make([]int, len(w.services)), ModelGroup{Devices: make([]int, len(w.clusterPools))}
	for s := range w.services {
		groupOf[s] = slices.IndexFunc(groups, func(g ModelGroup) bool { return slices.Contains(g.Models, w.services[s].name) })
		if groupOf[s] < 0 {
			groupOf[s], remainder.Models = len(groups), append(remainder.Models, w.services[s].name)
		}
	}
	for k := range w.clusterPools {
		remainder.Devices[k] = w.clusterPools[k].Count
		for i := range groups {
			remainder.Devices[k] -= groups[i].Devices[k]
		}
	}
	groups = append(groups, remainder)

	// Divide every pool between the groups.
	divided := *w
	divided.partitions, divided.pools, divided.prices, divided.services = nil, nil, nil, slices.Clone(w.services)
	for s := range divided.services {
		divided.services[s].byKind = nil
	}
	for k := range w.clusterPools {
		firstDevice := 0
		for i, g := range groups {
			if n := g.Devices[k]; n > 0 && len(g.Models) > 0 {
				divided.addPartition(w, partition{k, firstDevice}, n, func(s int) bool { return groupOf[s] == i })
				firstDevice += n
			}
		}
	}
	for s := range divided.services {
		if !slices.ContainsFunc(divided.services[s].byKind, func(on serviceOnKind) bool { return len(on.batches) > 0 }) {
			return nil, &document.Error{Path: "--dedicated", Found: fmt.Sprintf("%q, which leaves %s no devices that run it", text, divided.services[s].name), Expected: "devices for every model"}
		}
	}
	return &divided, nil
}

// addPartition adds a partition to w: so many devices of a pool, which run the same models and count as a kind of devices. On it run
// those services (models that applications ask for) for which runsService returns true, with the costs that they have on the pool in the
// undivided problem.
func (w *workflowProblem) addPartition(undivided *workflowProblem, part partition, devices int, runsService func(service int) bool) {
	pool := undivided.clusterPools[part.pool]
	pool.Count = devices
	w.partitions, w.pools, w.prices = append(w.partitions, part), append(w.pools, pool), append(w.prices, undivided.prices[part.pool])
	for s := range w.services {
		deployment := serviceOnKind{}
		if runsService(s) {
			deployment = undivided.services[s].byKind[part.pool]
		}
		w.services[s].byKind = append(w.services[s].byKind, deployment)
	}
}

// checkGroups returns an error if a group names an unknown model, a model twice, or more devices than there
// are.
func (w *workflowProblem) checkGroups(groups []ModelGroup) error {
	seenModels, takenDevices := map[string]bool{}, make([]int, len(w.clusterPools))
	for i := range groups {
		for _, name := range groups[i].Models {
			if !slices.ContainsFunc(w.services, func(s service) bool { return s.name == name }) {
				return fmt.Errorf("no workflow asks for %q", name)
			}
			if seenModels[name] {
				return fmt.Errorf("%q is there twice", name)
			}
			seenModels[name] = true
		}
		for k, n := range groups[i].Devices {
			if takenDevices[k] += n; takenDevices[k] > w.clusterPools[k].Count {
				return fmt.Errorf("the cluster has %d %s", w.clusterPools[k].Count, w.clusterPools[k].Device)
			}
		}
	}
	return nil
}

// DrainsLanguageModel returns whether a language model shares a device with another model. It then has to finish its sequences (drain)
// before the other model runs, which the plan's rates do not count, so its bound does not hold. modules has what the plan says of each
// deployed model, in the order of deployment.
func DrainsLanguageModel(deployment []formats.Deployed, modules []formats.FlowModule) bool {
	for i := range modules {
		if modules[i].Generation == nil {
			continue
		}
		for k := range deployment {
			if k != i && slices.ContainsFunc(deployment[i].Pipelines, func(a formats.Pipeline) bool {
				return slices.ContainsFunc(deployment[k].Pipelines, func(b formats.Pipeline) bool { return a.Stages[0].SharesDevice(&b.Stages[0]) })
			}) {
				return true
			}
		}
	}
	return false
}
