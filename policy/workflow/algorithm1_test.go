package workflow

import (
	"fmt"
	"math/rand/v2"
	"os"
	"testing"
	"time"

	"inferplan/formats/seeded"
	"inferplan/policy"
	"inferplan/policy/flow"
)

// algorithm1 is Algorithm 1 of DyOrc, repaired where it does not do what it says.
// Partial schedules are compared only if they have scheduled the same tasks and
// their open triples are of the same tasks and devices. The ends of tasks that
// nobody reads are kept. Sets are expanded level by level. It gives the least end.
type algorithm1 struct {
	f       *fleet
	rows    *rows
	j       *job
	readers [][]int32
	inOrder bool // tasks are added in their order alone: the ends are the same
}

// partial is a partial schedule: places and ends of the open tasks, in order of
// task, and the end of what nobody reads.
type partial struct {
	done  uint32
	place [maxTest]int32
	end   [maxTest]int64
	last  int64
}

const maxTest = 10

func (a *algorithm1) best(now int64) int64 {
	n := len(a.j.tasks)
	a.readers = make([][]int32, n)
	for t := range a.j.tasks {
		for _, in := range a.j.inputsOf(int32(t)) {
			if in >= 0 {
				a.readers[in] = append(a.readers[in], int32(t))
			}
		}
	}
	level := []partial{{}}
	for range n {
		next := map[partialKey][]partial{}
		var order []partialKey
		for i := range level {
			for t := range n {
				if !a.mayAdd(&level[i], t) {
					continue
				}
				for d := range a.f.ids {
					p := a.add(level[i], int32(t), int32(d), now)
					k := a.key(&p)
					if _, ok := next[k]; !ok {
						order = append(order, k)
					}
					next[k] = a.keep(next[k], p)
				}
				if a.inOrder {
					break
				}
			}
		}
		level = level[:0]
		for _, k := range order {
			level = append(level, next[k]...)
		}
	}
	least := never
	for i := range level {
		least = min(least, level[i].last)
	}
	return least
}

func (a *algorithm1) mayAdd(p *partial, t int) bool {
	if p.done>>t&1 == 1 {
		return false
	}
	for _, in := range a.j.inputsOf(int32(t)) {
		if in >= 0 && p.done>>in&1 == 0 {
			return false
		}
	}
	return true
}

// add adds the triple of equations 1 and 2, and removes redundant ones.
func (a *algorithm1) add(p partial, t, d int32, now int64) partial {
	k := &a.j.tasks[t]
	ready := now
	for _, in := range a.j.inputsOf(t) {
		if in >= 0 {
			ready = max(ready, p.end[in]+a.f.move(a.j.tasks[in].service, p.place[in], d))
		}
	}
	p.done |= 1 << t
	p.place[t], p.end[t] = d, a.rows.end(k.service, d, ready, k.work)
	if len(a.readers[t]) == 0 {
		p.last = max(p.last, p.end[t])
		p.place[t], p.end[t] = 0, 0
	}
	for u := range a.j.tasks {
		if p.done>>u&1 == 1 && a.read(&p, u) {
			p.place[u], p.end[u] = 0, 0
		}
	}
	return p
}

func (a *algorithm1) read(p *partial, u int) bool {
	for _, t := range a.readers[u] {
		if p.done>>t&1 == 0 {
			return false
		}
	}
	return true
}

type partialKey struct {
	done  uint32
	place [maxTest]int32
}

func (a *algorithm1) key(p *partial) partialKey { return partialKey{p.done, p.place} }

// keep adds a schedule unless another outperforms it, and drops those that it
// outperforms.
func (a *algorithm1) keep(list []partial, p partial) []partial {
	out := list[:0]
	for i := range list {
		if outperforms(&list[i], &p) {
			return list
		}
		if !outperforms(&p, &list[i]) {
			out = append(out, list[i])
		}
	}
	return append(out, p)
}

func outperforms(p, q *partial) bool {
	if p.last > q.last {
		return false
	}
	for t := range p.end {
		if p.end[t] > q.end[t] {
			return false
		}
	}
	return true
}

// testFleet is a fleet of so many devices and services, eight devices a node.
func testFleet(devices, services, perNode int) *fleet {
	t := &policy.Tables{Kinds: []string{"device"}, KindCounts: []int32{int32(devices)}, Models: []policy.Model{{Name: "app"}}}
	for d := range devices {
		t.Devices = append(t.Devices, policy.Device{Share: 1, Node: int32(d / perNode), Instance: -1})
		t.Memory = append(t.Memory, 40e9)
		t.Resident = append(t.Resident, nil)
	}
	own := &flow.Workflows{}
	for s := range services {
		i := int32(s)
		var infer []time.Duration
		for n := range 16 {
			infer = append(infer, time.Duration(600+10*n)*time.Millisecond)
		}
		t.Stages = append(t.Stages, policy.Stage{Pipeline: i, NumDevices: int32(devices), LastBlock: 1, Infer: infer})
		t.Pipelines = append(t.Pipelines, policy.Pipeline{Model: -1, Service: i, Network: i, Batch: 16, FirstStage: i, NumStages: 1})
		t.Services = append(t.Services, policy.Service{Name: fmt.Sprint("s", s), FirstPipeline: i, NumPipelines: 1})
		t.Networks = append(t.Networks, policy.Network{Name: fmt.Sprint("s", s), Bytes: 3e9, Base: -1, Load: [][2]time.Duration{{300 * time.Millisecond, 300 * time.Millisecond}}})
		own.Moves = append(own.Moves, flow.Move{Near: 200 * time.Microsecond, Far: 3 * time.Millisecond})
	}
	for d := range devices {
		t.StageDevices = append(t.StageDevices, int32(d))
	}
	t.Own = own
	return newFleet(t)
}

// randomRows fills rows as devices in the middle of their work would.
func randomRows(rng *rand.Rand, f *fleet) *rows {
	r := newRows(len(f.services), len(f.ids))
	for s := range f.services {
		comp := int64(rng.IntN(2000) + 10)
		for d := range f.ids {
			r.set(int32(s), int32(d), int64(rng.IntN(3000)), comp+int64(rng.IntN(300)))
			if rng.IntN(3) == 0 {
				r.setJoin(int32(s), int32(d), int64(rng.IntN(2500)), comp+int64(rng.IntN(400)))
			}
		}
	}
	return &r
}

// randomJob is a job of n tasks with an edge between any two with probability 1/2.
func randomJob(rng *rand.Rand, n, services int) *job {
	j := &job{}
	for t := range n {
		var in []int32
		for u := range t {
			if rng.IntN(2) == 0 {
				in = append(in, int32(u))
			}
		}
		work := unit
		if rng.IntN(3) == 0 {
			work = unit / 4
		}
		j.add(int32(rng.IntN(services)), work, in...)
	}
	return j
}

// The passes with branching end when the repaired Algorithm 1 does, on random
// graphs, with a proof each time.
func TestScheduleEqualsAlgorithm1(t *testing.T) {
	draws := 10_000
	if os.Getenv("INFERPLAN_LONG") != "" {
		draws = 200_000
	}
	rng := seeded.New(1, "algorithm 1")
	branched, passes := 0, 0
	for draw := range draws {
		devices := 2 + rng.IntN(5)
		f := testFleet(devices, 3, 1+rng.IntN(3))
		scale := []int64{1, 100, 1500}[rng.IntN(3)]
		for s := range f.near {
			f.near[s], f.far[s] = rng.Int64N(scale), scale+rng.Int64N(scale)
		}
		r := randomRows(rng, f)
		j := randomJob(rng, 3+rng.IntN(3), 3)
		now := int64(rng.IntN(500))
		s := newExact(f, r)
		end, bound := s.schedule(now, j, 0)
		a := algorithm1{f: f, rows: r, j: j, inOrder: draw%10 > 0}
		if want := a.best(now); end != want || bound != want {
			t.Fatalf("draw %d: ends at %d with bound %d, Algorithm 1 at %d (%d devices, %d tasks)", draw, end, bound, want, devices, len(j.tasks))
		}
		copy(s.at, s.to)
		if got := s.evaluate(j); got != end {
			t.Fatalf("draw %d: the places end at %d, not at %d", draw, got, end)
		}
		if s.passes > 1 {
			branched++
			passes = max(passes, s.passes)
		}
	}
	t.Logf("%d of %d draws were branched on, with at most %d passes", branched, draws, passes)
	if branched == 0 {
		t.Error("no draw was branched on")
	}
}

// A search with few passes still gives a schedule, and a bound that holds.
func TestScheduleWithinALimit(t *testing.T) {
	rng := seeded.New(2, "limit")
	for draw := range 500 {
		f := testFleet(5, 3, 2)
		for s := range f.near {
			f.near[s], f.far[s] = 500, 1500
		}
		r, j := randomRows(rng, f), randomJob(rng, 5, 3)
		s := newExact(f, r)
		exact, _ := s.schedule(0, j, 0)
		end, bound := s.schedule(0, j, 1)
		if bound > exact || end < exact {
			t.Fatalf("draw %d: %d to %d in one pass, %d in all", draw, bound, end, exact)
		}
	}
}

// workflows are the requests that times are shown for.
var workflows = []struct {
	name string
	make func(j *job)
}{
	{"GILL3", func(j *job) { a := j.add(0, unit, -1); b := j.add(1, unit, a); j.add(2, unit, b) }},
	{"GILL4", func(j *job) {
		a, b := j.add(0, unit, -1), j.add(0, unit, -1)
		c := j.add(1, unit, a, b)
		j.add(2, unit, c)
	}},
	{"KC4", func(j *job) {
		a := j.add(3, unit/4, -1)
		b := j.add(4, unit, a)
		c := j.add(3, unit/4, b, a)
		j.add(3, unit, c)
	}},
	{"KC6", func(j *job) {
		a := j.add(3, unit/4, -1)
		b := j.add(4, unit, a)
		c := j.add(3, unit/4, b, a)
		d := j.add(5, unit, c)
		e := j.add(3, unit/4, d, c)
		j.add(3, unit, e)
	}},
	{"chain8", func(j *job) {
		last := int32(-1)
		for i := range 8 {
			last = j.add(int32(i%6), unit, last)
		}
	}},
	{"DEBATE1", func(j *job) { debate(j, 1) }},
	{"DEBATE2", func(j *job) { debate(j, 2) }},
}

func debate(j *job, rounds int) {
	var before []int32
	for r := range rounds {
		var round []int32
		for range 3 {
			if r == 0 {
				round = append(round, j.add(3, unit, -1))
			} else {
				round = append(round, j.add(3, unit, before...))
			}
		}
		before = round
	}
}

// The same on the workflows of DyOrc, where Algorithm 1 comes to an end.
func TestScheduleOfWorkflows(t *testing.T) {
	for _, w := range workflows {
		for _, devices := range []int{1, 8, 32} {
			if devices == 32 && (w.name == "DEBATE2" || w.name == "DEBATE1" || w.name == "KC6") && os.Getenv("INFERPLAN_LONG") == "" || w.name == "DEBATE2" && devices > 1 {
				continue // there it takes seconds, or does not end
			}
			rng := seeded.New(uint64(devices), w.name)
			f := testFleet(devices, 6, 8)
			for s := range f.near {
				f.near[s], f.far[s] = 20, 300
			}
			r, j := randomRows(rng, f), &job{}
			w.make(j)
			s := newExact(f, r)
			end, bound := s.schedule(0, j, 0)
			a := algorithm1{f: f, rows: r, j: j, inOrder: true}
			if want := a.best(0); end != want || bound != end {
				t.Errorf("%s on %d devices: ends at %d with bound %d, Algorithm 1 at %d", w.name, devices, end, bound, want)
			}
		}
	}
}

// end is when a task ends at a place whose inputs are there at ready.
func (r *rows) end(service, place int32, ready, work int64) int64 {
	i := service*r.places + place
	end := max(r.free[i], ready) + scaled(r.comp[i], work)
	if r.join[i] >= ready {
		end = min(end, r.join[i]+scaled(r.joined[i], work))
	}
	return end
}
