package flow

import (
	"math/rand/v2"

	"inferplan/formats/seeded"
	"inferplan/policy"
)

// Choices decide where requests go, where that depends on their inputs or on the outputs of their tasks. The executor
// evaluates the plan's conditions; the simulator draws by the plan's chances.
type Choices interface {
	// Begin is called before anything else of a request.
	Begin(req, app int32)
	// ItemCount returns how often a step of the segment that a request visits runs.
	Items(req, app, segment, visit, step int32) int32
	// ChooseRoute returns the route that a task of a step takes, by its item.
	Route(req, app, segment, visit, step, item int32) int32
	// ChooseNext returns the branch that a request takes behind a segment, one of those that are open. It is called only if
	// several are open.
	Way(req, app, segment, visit int32, open []bool) int32
}

// TokenChoices are Choices that also give the tokens of tasks of language models.
type Lengths interface {
	Choices
	// TokenLengths returns the tokens of prompt and answer of a task of a step, which is given by its number among the
	// generation steps.
	Lengths(req, ask int32) (prompt, output int32)
}

// WorkflowControl decides which tasks the requests of workflows have. The tasks of a segment are revealed at once. When
// all have ended, the next segment is chosen.
type Walk struct {
	own      *Workflows
	choices  Choices
	lengths  Lengths // the choices, if they give tokens; otherwise nil
	requests []walker
	tasks    []int32 // by task slot
	open     []bool  // scratch: by branch
}

// workflowRequest is an open request.
type walker struct {
	app, segment int32
	left         int32   // tasks of the segment that have not ended
	slots        []int32 // slots of all its tasks
	latest       []span  // by name: the tasks of the latest run, in slots
	visits       []int32 // by segment
}

// slotRange is a range of a request's task slots.
type span struct{ first, end int32 }

// NewWorkflowControl returns the control that decides which tasks the requests of a run have. Choices are drawn from the
// seed 0 until others are set.
func NewWalk(t *policy.Tables) policy.Control {
	own := WorkflowsOf(t)
	w := &Walk{own: own}
	w.Choose(NewDraws(own, t, 0))
	return w
}

// SetChoices sets what decides where requests go.
func (w *Walk) Choose(c Choices) {
	w.choices = c
	w.lengths, _ = c.(Lengths)
}

// Begin implements policy.Control.
func (w *Walk) Begin(req, model int32, out *policy.Reveals) {
	for int(req) >= len(w.requests) {
		w.requests = append(w.requests, walker{})
	}
	q := &w.requests[req]
	app := &w.own.Apps[model]
	q.app, q.slots, q.latest, q.visits = model, q.slots[:0], q.latest[:0], q.visits[:0]
	for range app.Names {
		q.latest = append(q.latest, span{})
	}
	for range app.Segments {
		q.visits = append(q.visits, 0)
	}
	w.choices.Begin(req, model)
	w.enter(req, 0, out)
}

// enterSegment takes a request to a segment, and reveals its tasks. If none of its steps runs, the request goes on to
// the next segment.
func (w *Walk) enter(req, segment int32, out *policy.Reveals) {
	q := &w.requests[req]
	for {
		q.segment = segment
		q.visits[segment]++
		before := len(q.slots)
		for k := range w.own.Apps[q.app].Segments[segment].Steps {
			w.run(req, int32(k), out)
		}
		if q.left = int32(len(q.slots) - before); q.left > 0 {
			return
		}
		if segment = w.next(req); segment < 0 {
			w.end(req, out)
			return
		}
	}
}

// revealStep reveals the tasks of a step.
func (w *Walk) run(req, k int32, out *policy.Reveals) {
	q := &w.requests[req]
	s := &w.own.Apps[q.app].Segments[q.segment].Steps[k]

	// How often does it run?
	n := s.Fixed
	each := span{}
	switch {
	case s.Each >= 0:
		each = q.latest[s.Each]
		n = each.end - each.first
	case s.Counted:
		n = w.choices.Items(req, q.app, q.segment, q.visits[q.segment], k)
	}

	// A task per item.
	first := int32(len(q.slots))
	for item := range n {
		slot := out.Take()
		for int(slot) >= len(w.tasks) {
			w.tasks = append(w.tasks, 0)
		}
		w.tasks[slot] = req
		r := policy.Reveal{Req: req, Task: slot, Service: s.Service, Work: s.Work, Item: int64(item), FirstInput: int32(len(out.Inputs))}
		if s.Service < 0 {
			r.Service = s.Routes[w.choices.Route(req, q.app, q.segment, q.visits[q.segment], k, item)]
		}

		// Inputs: all tasks of the latest run, or the one of this item.
		for _, name := range s.Reads {
			from := q.latest[name]
			if name == s.Each {
				from = span{each.first + item, each.first + item + 1}
			}
			out.Inputs = append(out.Inputs, q.slots[from.first:from.end]...)
		}
		if r.Ask = s.Ask; r.Ask > 0 && w.lengths != nil {
			r.Prompt, r.Output = w.lengths.Lengths(req, r.Ask-1)
		}
		if r.NumInputs = int32(len(out.Inputs)) - r.FirstInput; r.NumInputs == 0 {
			out.Inputs, r.NumInputs = append(out.Inputs, -1), 1
		}
		q.slots = append(q.slots, slot)
		out.Tasks = append(out.Tasks, r)
	}
	q.latest[s.Name] = span{first, int32(len(q.slots))}
}

// nextSegment returns the segment that follows the current one of a request. If the request ends, it returns -1.
func (w *Walk) next(req int32) int32 {
	q := &w.requests[req]
	app := &w.own.Apps[q.app]
	s := &app.Segments[q.segment]
	w.open = w.open[:0]
	ways, last := 0, int32(-1)
	for b, to := range s.To {
		open := to < 0 || app.Segments[to].Most == 0 || q.visits[to] < app.Segments[to].Most
		if w.open = append(w.open, open); open {
			ways++
			last = int32(b)
		}
	}
	if ways > 1 {
		last = w.choices.Way(req, q.app, q.segment, q.visits[q.segment], w.open)
	}
	if last < 0 {
		return -1
	}
	return s.To[last]
}

// Ended implements policy.Control.
func (w *Walk) Ended(task int32, _ policy.Outcome, out *policy.Reveals) {
	req := w.tasks[task]
	q := &w.requests[req]
	if q.left--; q.left > 0 {
		return
	}
	if to := w.next(req); to >= 0 {
		w.enter(req, to, out)
		return
	}
	w.end(req, out)
}

// endRequest reports that a request is over.
func (w *Walk) end(req int32, out *policy.Reveals) {
	out.Over = append(out.Over, req)
	w.Forget(req, out)
}

// Forget implements policy.Control.
func (w *Walk) Forget(req int32, out *policy.Reveals) {
	if int(req) < len(w.requests) {
		q := &w.requests[req]
		out.Freed = append(out.Freed, q.slots...)
		q.slots = q.slots[:0]
	}
}

// LatestTasks returns the tasks of a module's latest run, also of a request that has just ended. The caller must not
// change the list.
func (w *Walk) Latest(req, name int32) []int32 {
	q := &w.requests[req]
	of := q.latest[name]
	return q.slots[of.first:of.end]
}

// SegmentOf returns the segment that a request is in, or has ended in.
func (w *Walk) Segment(req int32) int32 { return w.requests[req].segment }

// RandomChoices draw by the chances of the plan. Each request draws from a stream of its own, which it gets when it
// begins, so that its path does not depend on the policy.
type Draws struct {
	own  *Workflows
	apps []*rand.Rand
	rng  []rand.PCG                      // by request
	from *rand.PCG                       // stream that tokens are drawn from
	asks []func() (prompt, output int32) // by generation step
}

// Uint64 implements rand.Source by the stream of the request whose tokens are drawn.
func (d *Draws) Uint64() uint64 { return d.from.Uint64() }

// NewRandomChoices returns the choices of a seed.
func NewDraws(own *Workflows, t *policy.Tables, seed uint64) *Draws {
	d := &Draws{own: own}
	for i := range t.Models {
		d.apps = append(d.apps, seeded.New(seed, "requests/"+t.Models[i].Name))
	}
	rng := rand.New(d)
	for _, a := range own.Asks {
		d.asks = append(d.asks, a.draw(rng))
	}
	return d
}

// Begin implements Choices.
func (d *Draws) Begin(req, app int32) {
	for int(req) >= len(d.rng) {
		d.rng = append(d.rng, rand.PCG{})
	}
	d.rng[req].Seed(d.apps[app].Uint64(), d.apps[app].Uint64())
}

// TokenLengths implements TokenChoices.
func (d *Draws) Lengths(req, ask int32) (prompt, output int32) {
	d.from = &d.rng[req]
	return d.asks[ask]()
}

// uniform returns a random number from [0,1).
func (d *Draws) uniform(req int32) float64 { return float64(d.rng[req].Uint64()>>11) / (1 << 53) }

// drawIndex draws an index by chances.
func (d *Draws) pick(req int32, chances []float64) int32 {
	u := d.uniform(req)
	for i, p := range chances[:len(chances)-1] {
		if u -= p; u < 0 {
			return int32(i)
		}
	}
	return int32(len(chances) - 1)
}

// ItemCount implements Choices. Without chances a step runs once.
func (d *Draws) Items(req, app, segment, _, step int32) int32 {
	chances := d.own.Apps[app].Segments[segment].Steps[step].Items
	if len(chances) == 0 {
		return 1
	}
	return d.pick(req, chances)
}

// Route implements Choices.
func (d *Draws) Route(req, app, segment, _, step, _ int32) int32 {
	return d.pick(req, d.own.Apps[app].Segments[segment].Steps[step].Shares)
}

// Way implements Choices.
func (d *Draws) Way(req, app, segment, visit int32, open []bool) int32 {
	s := &d.own.Apps[app].Segments[segment]
	sum, last := 0.0, int32(0)
	for b := range open {
		if open[b] {
			sum += s.Next[b].ChanceAt(int(visit))
		}
	}
	u := d.uniform(req) * sum
	for b := range open {
		if !open[b] {
			continue
		}
		last = int32(b)
		if u -= s.Next[b].ChanceAt(int(visit)); u < 0 {
			break
		}
	}
	return last
}
