package drop

import (
	"slices"

	"inferplan/policy"
	"inferplan/policy/flow"
	"inferplan/policy/predict"
)

// pathShares learns which outcome requests have at a branch. A module's token in the table is its service. What follows
// a branch is counted by the branch's token alone.
type ways struct {
	own    *flow.Tables
	table  *predict.Table
	tokens []int32     // by service
	branch []int32     // by application and service: the node, if it is a branch; otherwise -1
	next   []int32     // by task: the service that followed it; -1 if none
	share  [][]float64 // by node of all applications: share of each outcome
	known  []predict.Share
	path   [2]int32
}

// branchSkipsModules returns true if a branch of an application skips modules: one of its outcomes leads to all modules
// that another one leads to, and to more.
func skips(own *flow.Tables) bool {
	for a := range own.Apps {
		nodes := own.Apps[a].Nodes
		for i := range nodes {
			led := leads(&nodes[i])
			for _, fewer := range led {
				for _, more := range led {
					if len(fewer) < len(more) && !slices.ContainsFunc(fewer, func(n int32) bool { return !slices.Contains(more, n) }) {
						return true
					}
				}
			}
		}
	}
	return false
}

// nodesByOutcome returns, for each outcome of a node, the nodes that it leads to.
func leads(n *flow.Node) [][]int32 {
	led := make([][]int32, len(n.Ways))
	for _, path := range n.Paths {
		if len(path) == 0 {
			continue
		}
		for _, e := range n.Out {
			for way := range led {
				if e.To == path[0] && (e.Way < 0 || int(e.Way) == way) {
					led[way] = append(led[way], path...)
				}
			}
		}
	}
	for way := range led {
		slices.Sort(led[way])
		led[way] = slices.Compact(led[way])
	}
	return led
}

// newPathShares returns the shares of all branches as planned.
func newWays(own *flow.Tables) *ways {
	w := &ways{own: own, table: predict.New(predict.Options{LastOnly: true})}
	for m := range own.Modules {
		w.tokens = append(w.tokens, w.table.Number(int32(m), 0, nil))
	}
	for a := range own.Apps {
		of := make([]int32, len(own.Modules))
		for m := range of {
			of[m] = -1
		}
		for i := range own.Apps[a].Nodes {
			n := &own.Apps[a].Nodes[i]
			if len(n.Ways) > 0 {
				of[n.Service] = int32(i)
			}
			w.share = append(w.share, slices.Clone(n.Ways))
		}
		w.branch = append(w.branch, of...)
	}
	return w
}

// firstNodeShare returns the index in outcomeShares of an application's first node.
func (w *ways) first(app int) int {
	at := 0
	for a := range app {
		at += len(w.own.Apps[a].Nodes)
	}
	return at
}

// recordFollower records that a task of a service follows the tasks that it reads.
func (w *ways) follows(ev *policy.Event) {
	if w == nil {
		return
	}
	for int(ev.Task) >= len(w.next) {
		w.next = append(w.next, -1)
	}
	w.next[ev.Task] = -1
	for _, t := range ev.List {
		if t >= 0 && int(t) < len(w.next) {
			w.next[t] = ev.Service
		}
	}
}

// learnFromBatch learns from the tasks of a batch that has ended. What follows them has been revealed by then.
func (w *ways) ended(book *flow.Book, list []flow.Entry) {
	if w == nil {
		return
	}
	for i := range list {
		if !book.Wanted(&list[i]) {
			continue
		}
		t := &book.Tasks[list[i].Task]
		app := book.Requests[list[i].Req].Model
		if w.branch[int(app)*len(w.tokens)+int(t.Service)] < 0 {
			continue
		}
		w.path[0] = w.tokens[t.Service]
		path := w.path[:1]
		if next := w.next[list[i].Task]; next >= 0 {
			w.path[1] = w.tokens[next]
			path = w.path[:2]
		}
		w.table.Learn(app, predict.NoFeature, path, 1)
	}
}

// updateShares computes how often every outcome occurs. Outcomes of unknown branches keep their planned shares.
func (w *ways) shares() {
	at := 0
	for a := range w.own.Apps {
		app := &w.own.Apps[a]
		for i := range app.Nodes {
			if n := &app.Nodes[i]; len(n.Ways) > 0 {
				w.look(int32(a), app, int32(i), w.share[at])
			}
			at++
		}
	}
}

// updateNodeShares sets the shares of a node's outcomes from the table.
func (w *ways) look(a int32, app *flow.App, node int32, share []float64) {
	n := &app.Nodes[node]
	c := w.table.Begin(a, predict.NoFeature)
	w.table.Advance(&c, w.tokens[n.Service])
	w.known = w.table.Shares(&c, w.known[:0])
	if len(w.known) == 0 {
		return
	}
	clear(share)
	for _, k := range w.known {
		share[w.wayTo(app, n, k.Token)] += k.Share
	}
}

// outcomeTo returns the outcome of a branch after which a token follows. For the end of the request, it returns an
// outcome that leads nowhere.
func (w *ways) wayTo(app *flow.App, n *flow.Node, token int32) int32 {
	empty := int32(0)
	for _, e := range n.Out {
		switch {
		case e.Way < 0:
		case w.tokens[app.Nodes[e.To].Service] == token:
			return e.Way
		case e.Way == empty:
			empty++
		}
	}
	return min(empty, int32(len(n.Ways)-1))
}

// pathShare returns how often a request that is at a node takes a path.
func (w *ways) along(app int, node int32, path []int32) float64 {
	share, first, from := 1.0, w.first(app), node
	for _, to := range path {
		for _, e := range w.own.Apps[app].Nodes[from].Out {
			if e.To == to && e.Way >= 0 {
				share *= w.share[first+int(from)][e.Way]
			}
		}
		from = to
	}
	return share
}
