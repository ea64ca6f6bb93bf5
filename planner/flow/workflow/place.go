package workflow

import (
	"cmp"
	"container/heap"
	"context"
	"fmt"
	"math"
	"slices"

	"inferplan/planner/flow/terms"
	"inferplan/planner/lists"
	"inferplan/solver/milp"
)

// placement says which services the devices hold at the start, and how much of the work runs on them.
type placement struct {
	kindOf       []int       // by device
	heldServices [][]int     // by device
	kindTime     [][]float64 // device time that a service takes at the planned rates, in devices, by service and kind
	totalTime    []float64   // device time that a service takes on all kinds, in devices, by service
	timeValue    [][]float64 // by service and kind: how much of totalTime the work is that one device of the kind does. If the kind cannot run the service, it is 0.
	servedTime   float64     // part of the total time of all services that runs on devices that hold the service
	servedBound  float64     // upper bound of servedTime over all placements
	extraCopies  int         // copies beyond those that the rates need
	nodes        int64
}

// placer makes a placement: it chooses which services devices hold.
type placer struct {
	problem    *workflowProblem
	modelBytes []int64 // by kind, see modelBytes
	placement  *placement
}

// maxPlacementSize limits the program of a placement, in devices times services.
const maxPlacementSize = 4096

// maxPlacementNodes limits its branching.
const maxPlacementNodes = 500

// TimeTolerance is the tolerance of device times, in devices.
const TimeTolerance = 1e-9

// placeServices chooses which services (models that applications ask for) the devices hold in memory at the start. First it places copies
// so that as much of the planned time as possible runs where the service is held: greedily and, if that does not serve everything, by a
// program. Then it adds copies in the memory that is left, unless the option algorithm is shares, where devices keep just these models.
func placeServices(ctx context.Context, w *workflowProblem, b *chosenBatches) (*placement, error) {
	devicePlacer := &placer{problem: w, modelBytes: modelBytes(w), placement: newPlacement(w, b)}
	devicePlacer.placeGreedily()

	// No placement serves more than all time. If the greedy one does not serve that, improve it by a program, unless the program is too
	// large or the bound is reached.
	p := devicePlacer.placement
	totalTime := lists.Total(p.totalTime)
	p.servedBound = totalTime
	if p.servedTime < totalTime*(1-1e-6) {
		// servedUpperBound takes the memory of all devices as one. It is made for devices of one kind.
		if len(w.pools) == 1 {
			p.servedBound = min(totalTime, devicePlacer.servedUpperBound(devicePlacer.modelBytes[0]))
		}
		if len(p.kindOf)*len(w.services) <= maxPlacementSize && p.servedTime < p.servedBound*(1-1e-6) {
			if err := devicePlacer.improveByProgram(ctx); err != nil {
				return nil, err
			}
		}
	}
	if w.input.Values.Word("algorithm") != terms.AlgorithmShares {
		devicePlacer.addCopies()
	}
	return p, nil
}

// newPlacement returns a placement in which no device holds a service yet, for the devices that b chose. It has the time that each service
// takes of each kind of devices at the planned rates, in devices (1 is all the time of one device), and the value of a device's time
// (timeValue), with which times on kinds of different speeds are added up.
func newPlacement(w *workflowProblem, b *chosenBatches) *placement {
	// For throughput the planned rates are the weights times the rate factor.
	factor, p := 1.0, &placement{}
	if w.objective == "throughput" {
		factor, _ = b.rateFactor()
	}
	for k, n := range b.counts {
		p.kindOf = append(p.kindOf, slices.Repeat([]int{k}, n)...)
	}
	for s := range w.services {
		timeValue := make([]float64, len(w.pools))
		kindTime := lists.Filled(len(w.pools), func(k int) float64 { return factor * b.serviceTime(w, s, k) })

		// A device of a fast kind does more of the service's tasks than one of a slow kind. If all tasks ran on kind k, they would
		// take devicesAlone devices there instead of totalTime. So one device there does the work of totalTime / devicesAlone.
		totalTime := lists.Total(kindTime)
		for k := range timeValue {
			if b.batch[s][k] == notDeployed {
				continue
			}
			timeValue[k] = 1
			if len(timeValue) > 1 && totalTime > 0 {
				chosen := &w.services[s].byKind[k].batches[b.batch[s][k]]
				devicesAlone := factor * w.serviceLoad(s) * chosen.secondsPerTask() // tasks per second, times the seconds of a task
				timeValue[k] = totalTime / devicesAlone
			}
		}
		p.kindTime, p.totalTime, p.timeValue = append(p.kindTime, kindTime), append(p.totalTime, totalTime), append(p.timeValue, timeValue)
	}
	return p
}

// modelBytes returns, by kind of devices, the bytes of a device that weights of services may fill: its memory less what the largest batch
// of any service needs beside the weights. A pool whose memory is not given has no limit.
func modelBytes(w *workflowProblem) []int64 {
	bytes := make([]int64, len(w.pools))
	for k := range bytes {
		if w.pools[k].Memory == 0 {
			bytes[k] = math.MaxInt64
			continue
		}
		workingBytes := lists.Max(int64(0), len(w.services), func(s int) int64 { return w.services[s].byKind[k].workingBytes })
		bytes[k] = int64(w.pools[k].Memory) - workingBytes
	}
	return bytes
}

// placeGreedily decides which devices hold which services, in the placement: the services of the largest weights come first, each on the
// devices with the most free time, as far as memory and time allow. A service whose time does not fit anywhere is loaded at run time for
// the rest of it.
func (r *placer) placeGreedily() {
	services, p := r.problem.services, r.placement
	order := lists.Indexes(len(services))
	slices.SortStableFunc(order, func(a, b int) int {
		return cmp.Or(cmp.Compare(services[b].weights, services[a].weights), cmp.Compare(p.totalTime[b], p.totalTime[a]))
	})
	p.heldServices = make([][]int, len(p.kindOf))

	// Every device starts with all of its time and memory.
	free := &freeDevices{time: make([]float64, len(p.kindOf)), bytes: make([]int64, len(p.kindOf)), firstEmpty: make([]int, len(r.modelBytes))}
	for d, k := range p.kindOf {
		free.time[d], free.bytes[d] = 1, r.modelBytes[k]
	}
	for _, s := range order {
		for k, remainingTime := range p.kindTime[s] {
			for remainingTime > TimeTolerance {
				// The service's time on a kind is spread over as many devices as it takes.
				device := r.roomiestDevice(free, s, k)
				if device < 0 {
					break
				}

				// Serve as much there as the device has time for.
				servedHere := min(remainingTime, free.time[device])
				p.heldServices[device] = append(p.heldServices[device], s)
				free.time[device] -= servedHere
				free.bytes[device] -= services[s].weights
				remainingTime -= servedHere
				p.servedTime += servedHere * p.timeValue[s][k]
			}
		}
	}
}

// freeDevices has what is free of the devices while services are placed.
type freeDevices struct {
	time       []float64 // by device
	bytes      []int64   // by device
	firstEmpty []int     // the first device that holds nothing, by kind
}

// roomiestDevice returns the device of a kind on which service s is placed next: one that holds nothing, else the one with the most free
// time among those with the memory for it. If there is none, it returns -1. A device's free time is 1 as long as it holds nothing. It also
// moves the kind's first empty device on in `free`.
func (r *placer) roomiestDevice(free *freeDevices, s, kind int) int {
	p, weights := r.placement, r.problem.services[s].weights
	empty := free.firstEmpty[kind]
	for empty < len(free.time) && (p.kindOf[empty] != kind || free.time[empty] < 1) {
		empty++
	}
	free.firstEmpty[kind] = empty
	if empty < len(free.time) && free.bytes[empty] >= weights {
		return empty
	}

	// No device is empty, or an empty one has too little memory; then no device of the kind has enough. Compare those that have time and
	// memory left, and do not hold the service yet. The search ends at one with all of its time: no other has more.
	roomiest := -1
	for d := 0; d < len(free.time) && (roomiest < 0 || free.time[roomiest] < 1); d++ {
		if p.kindOf[d] != kind || free.bytes[d] < weights || free.time[d] <= TimeTolerance || slices.Contains(p.heldServices[d], s) {
			continue
		}
		if roomiest < 0 || free.time[d] > free.time[roomiest]+TimeTolerance {
			roomiest = d
		}
	}
	return roomiest
}

// servedUpperBound returns an upper bound on the time of services that runs where they are held, in devices, for any placement on a
// single kind of devices: it treats the memory of all devices as one, and takes fractions of copies, the services with the most time per
// byte first. modelBytes is the memory of a device for weights.
func (r *placer) servedUpperBound(modelBytes int64) float64 {
	p, services := r.placement, r.problem.services
	type item struct{ busy, bytes float64 } // device time, and the bytes of the copies that serve it: one per device, at least one
	var items []item
	for s := range services {
		if p.totalTime[s] > 0 {
			items = append(items, item{p.totalTime[s], float64(services[s].weights) * math.Max(1, p.totalTime[s])})
		}
	}
	slices.SortStableFunc(items, func(a, b item) int { return cmp.Compare(b.busy*a.bytes, a.busy*b.bytes) })
	remainingBytes, served := float64(modelBytes)*float64(len(p.kindOf)), 0.0
	for _, x := range items {
		fraction := 1.0
		if x.bytes > 0 {
			fraction = math.Min(1, remainingBytes/x.bytes)
		}
		served += fraction * x.busy
		remainingBytes -= fraction * x.bytes
	}
	return math.Min(served, float64(len(p.kindOf)))
}

// improveByProgram improves a placement by a mixed-integer program: x_sd says whether device d holds service s,
// u_sd which part of the device's time the service has there. U_s is the time of all of its work, in devices
// (totalTime), and v_sd how much of that the device does in all of its time (timeValue). A service may get time on
// kinds of devices to which chooseBatches gave none of its work:
//
//	max Σ v_sd u_sd;   Σ_s u_sd ≤ 1;   Σ_d v_sd u_sd ≤ U_s;   u_sd ≤ min(1, U_s/v_sd) x_sd;   Σ_s bytes_s x_sd ≤ memory - largest batch
//
// servedTime and servedBound are its value and bound, in devices.
func (r *placer) improveByProgram(ctx context.Context) error {
	m, holdVars := r.newProgram()
	sol, err := r.problem.run.Solver.Solve(ctx, m, milp.Options{Gap: r.problem.gap, Seed: r.problem.seed, MaxNodes: maxPlacementNodes})
	if err != nil {
		return fmt.Errorf("solving the program of a placement: %w", err)
	}
	p := r.placement
	p.nodes = sol.Stats.Nodes
	if !sol.Feasible() {
		return nil // keep the placement without the program
	}

	// Take the program's placement if it serves more and really fits. By rounding, the solver's bound may be below the value.
	p.servedBound = min(p.servedBound, max(sol.Bound, sol.Value))
	if sol.Value <= p.servedTime*(1+1e-6) {
		return nil
	}
	heldServices := make([][]int, len(p.kindOf))
	for d, k := range p.kindOf {
		freeBytes := r.modelBytes[k]
		for s, x := range holdVars[d] {
			if x >= 0 && sol.Int(x) == 1 {
				heldServices[d] = append(heldServices[d], s)
				freeBytes -= r.problem.services[s].weights
			}
		}
		if freeBytes < 0 {
			return nil // fits only within the solver's tolerance
		}
	}
	p.heldServices, p.servedTime = heldServices, sol.Value
	return nil
}

// newProgram returns the program of improveByProgram. holdVars has, by device and service, its variable x that says whether the device
// holds the service; -1 stands for a device that cannot run it. The variable u is the part of the device's time that the service has there,
// if the device holds it. The program maximizes the work that all these parts do. Memory is in gigabytes.
func (r *placer) newProgram() (m *milp.Model, holdVars [][]milp.Var) {
	m = milp.New("placement of workflows")
	m.SetSense(milp.Maximize)
	p, services := r.placement, r.problem.services
	demand := lists.Filled(len(services), func(s int) milp.Row { return m.AddLE("time of "+services[s].name, p.totalTime[s]) }) // no more work than the service has
	holdVars = make([][]milp.Var, len(p.kindOf))
	for d, k := range p.kindOf {
		memory, time := m.AddLE(fmt.Sprintf("memory %d", d), float64(r.modelBytes[k])/1e9), m.AddLE(fmt.Sprintf("time %d", d), 1)
		for s := range services {
			value := p.timeValue[s][k] // how much of totalTime one device of the kind does
			if value == 0 {
				holdVars[d] = append(holdVars[d], -1)
				continue
			}
			maxTime := min(1, p.totalTime[s]/value) // the part of the device's time in which it would do all work of the service, at most 1
			x := m.AddBool(fmt.Sprintf("%s on %d", services[s].name, d), 0)
			u := m.AddVar("", 0, maxTime, value)
			m.AddTerm(memory, x, float64(services[s].weights)/1e9)
			m.AddTerm(time, u, 1)
			m.AddTerm(demand[s], u, value)
			m.AddLE("", 0, milp.Term{Var: u, Coef: 1}, milp.Term{Var: x, Coef: -maxTime}) // without x, u is 0
			holdVars[d] = append(holdVars[d], x)
		}
	}
	return m, holdVars
}

// addCopies fills the memory that is still free with further copies of services, one at a time, each of the service that has the most
// device time (totalTime, at the planned rates) per copy: then more requests find their service loaded. It changes heldServices of the
// placement and counts the copies.
func (r *placer) addCopies() {
	p, services := r.placement, r.problem.services

	// Count the copies, and what is left of each device's memory.
	copies, freeBytes := make([]int, len(services)), make([]int64, len(p.kindOf))
	for d := range p.heldServices {
		freeBytes[d] = r.modelBytes[p.kindOf[d]]
		for _, s := range p.heldServices[d] {
			copies[s]++
			freeBytes[d] -= services[s].weights
		}
	}

	// For every service, collect the devices that can run it (timeValue > 0) and have room for a copy, the one with the most free memory
	// first. All heaps see the same freeBytes, so a copy of one service makes entries in the heaps of others stale.
	candidates := make([]memoryHeap, len(services))
	for s := range candidates {
		candidates[s].freeBytes = freeBytes
		for d := range freeBytes {
			if p.totalTime[s] > 0 && p.timeValue[s][p.kindOf[d]] > 0 && freeBytes[d] >= services[s].weights && !slices.Contains(p.heldServices[d], s) {
				candidates[s].entries = append(candidates[s].entries, deviceMemory{freeBytes[d], d})
			}
		}
		heap.Init(&candidates[s])
	}

	// Place one copy after another until no service fits anywhere.
	for {
		// Choose the service with the most time per copy, the new one included, of those that still fit on some device.
		chosen := -1
		for s := range services {
			// totalTime / (copies + 1) of both, compared without divisions
			if chosen >= 0 && p.totalTime[s]*float64(copies[chosen]+1) <= p.totalTime[chosen]*float64(copies[s]+1) {
				continue
			}
			// refreshTop corrects stale entries, and returns false if no device has room any more.
			if candidates[s].refreshTop(services[s].weights) {
				chosen = s
			}
		}
		if chosen < 0 {
			return
		}
		device := heap.Pop(&candidates[chosen]).(deviceMemory).device
		p.heldServices[device] = append(p.heldServices[device], chosen)
		freeBytes[device] -= services[chosen].weights
		copies[chosen]++
		p.extraCopies++
	}
}

// deviceMemory is the free memory of a device, as it was when the entry was made.
type deviceMemory struct {
	freeBytes int64
	device    int
}

// memoryHeap is a heap of the devices that may hold a service. The one with the most free memory is first.
type memoryHeap struct {
	freeBytes []int64 // current values, by device
	entries   []deviceMemory
}

// refreshTop brings the heap of devices that may hold a copy up to date, as copies of other services have taken memory since its entries
// were made, until the first one is right and has the required bytes. Entries with less are removed. It returns false if no device has
// them.
func (r *memoryHeap) refreshTop(requiredBytes int64) bool {
	for len(r.entries) > 0 {
		top := &r.entries[0]
		switch currentBytes := r.freeBytes[top.device]; {
		case currentBytes < requiredBytes:
			heap.Pop(r)
		case currentBytes < top.freeBytes:
			top.freeBytes = currentBytes
			heap.Fix(r, 0)
		default:
			return true
		}
	}
	return false
}

// Len, Swap, Push, Less and Pop implement heap.Interface. Among equals the device with the lower number
// comes first.
func (r *memoryHeap) Len() int      { return len(r.entries) }
func (r *memoryHeap) Swap(i, j int) { r.entries[i], r.entries[j] = r.entries[j], r.entries[i] }
func (r *memoryHeap) Push(x any)    { r.entries = append(r.entries, x.(deviceMemory)) }

func (r *memoryHeap) Less(i, j int) bool {
	a, b := r.entries[i], r.entries[j]
	return a.freeBytes > b.freeBytes || a.freeBytes == b.freeBytes && a.device < b.device
}

func (r *memoryHeap) Pop() any {
	last := r.entries[len(r.entries)-1]
	r.entries = r.entries[:len(r.entries)-1]
	return last
}
