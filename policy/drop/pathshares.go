package drop

import (
	"slices"

	"inferplan/policy"
	"inferplan/policy/flow"
	"inferplan/policy/predict"
)

// pathShares learns which outcome requests have at a branch. A module's token in the table is its service. What follows
// a branch is counted by the branch's token alone.
type pathShares struct {
	graphTables   *flow.GraphTables
	table         *predict.TransitionTable
	tokens        []int32     // by service
	branchNode    []int32     // by application and service: the node, if it is a branch; otherwise -1
	nextService   []int32     // by task: the service that followed it; -1 if none
	outcomeShares [][]float64 // by node of all applications: share of each outcome
	knownShares   []predict.TokenChance
	pathScratch   [2]int32
}

// branchSkipsModules returns true if a branch of an application skips modules: one of its outcomes leads to all modules
// that another one leads to, and to more.
func branchSkipsModules(graphTables *flow.GraphTables) bool {
	for a := range graphTables.Apps {
		nodes := graphTables.Apps[a].Nodes
		for i := range nodes {
			if reachable := nodesByOutcome(&nodes[i]); hasProperSubset(reachable) {
				return true
			}
		}
	}
	return false
}

// hasProperSubset returns true if all members of one of the sets are in another one, which has more.
func hasProperSubset(sets [][]int32) bool {
	for _, subset := range sets {
		for _, superset := range sets {
			isMissing := func(n int32) bool { return !slices.Contains(superset, n) }
			if len(subset) < len(superset) && !slices.ContainsFunc(subset, isMissing) {
				return true
			}
		}
	}
	return false
}

// nodesByOutcome returns, for each outcome (branch) of a node, all nodes on the paths behind it, sorted. Edges
// without an outcome belong to every one.
func nodesByOutcome(n *flow.Node) [][]int32 {
	reachable := make([][]int32, len(n.OutcomeChances))
	for _, path := range n.Paths {
		if len(path) == 0 {
			continue
		}
		for _, e := range n.Outputs {
			for outcome := range reachable {
				if e.To == path[0] && (e.Outcome < 0 || int(e.Outcome) == outcome) {
					reachable[outcome] = append(reachable[outcome], path...)
				}
			}
		}
	}
	for outcome := range reachable {
		slices.Sort(reachable[outcome])
		reachable[outcome] = slices.Compact(reachable[outcome])
	}
	return reachable
}

// newPathShares returns the shares with which requests take the outcomes (branches) of each node, at first as
// planned. They are learned from the requests.
func newPathShares(graphTables *flow.GraphTables) *pathShares {
	w := &pathShares{graphTables: graphTables, table: predict.New(predict.Options{LastTokenOnly: true})}
	for m := range graphTables.Modules {
		w.tokens = append(w.tokens, w.table.TokenNumber(int32(m), 0, nil))
	}
	for a := range graphTables.Apps {
		branchOf := make([]int32, len(graphTables.Modules))
		for m := range branchOf {
			branchOf[m] = -1
		}
		for i := range graphTables.Apps[a].Nodes {
			n := &graphTables.Apps[a].Nodes[i]
			if len(n.OutcomeChances) > 0 {
				branchOf[n.Service] = int32(i)
			}
			w.outcomeShares = append(w.outcomeShares, slices.Clone(n.OutcomeChances))
		}
		w.branchNode = append(w.branchNode, branchOf...)
	}
	return w
}

// firstNodeShare returns the index in outcomeShares of an application's first node.
func (w *pathShares) firstNodeShare(app int) int {
	offset := 0
	for a := range app {
		offset += len(w.graphTables.Apps[a].Nodes)
	}
	return offset
}

// recordFollower records, when a task is revealed, that its service follows the tasks that it reads. So it becomes
// known which branch these requests took.
func (w *pathShares) recordFollower(ev *policy.Event) {
	if w == nil {
		return
	}
	for int(ev.Task) >= len(w.nextService) {
		w.nextService = append(w.nextService, -1)
	}
	w.nextService[ev.Task] = -1
	for _, t := range ev.List {
		if t >= 0 && int(t) < len(w.nextService) {
			w.nextService[t] = ev.Service
		}
	}
}

// learnFromBatch learns which branches the requests of a batch took, when it has ended and what follows its tasks
// has been revealed. Tasks of services without branches teach nothing.
func (w *pathShares) learnFromBatch(tasks *flow.TaskTable, list []flow.QueueEntry) {
	if w == nil {
		return
	}
	for i := range list {
		if !tasks.IsWanted(&list[i]) {
			continue
		}
		t := &tasks.Tasks[list[i].Task]
		app := tasks.Requests[list[i].Req].Model
		if w.branchNode[int(app)*len(w.tokens)+int(t.Service)] < 0 {
			continue
		}
		w.pathScratch[0] = w.tokens[t.Service]
		path := w.pathScratch[:1]
		if follower := w.nextService[list[i].Task]; follower >= 0 {
			w.pathScratch[1] = w.tokens[follower]
			path = w.pathScratch[:2]
		}
		w.table.Learn(app, predict.NoFeature, path, 1)
	}
}

// updateShares computes how often every outcome occurs. Outcomes of unknown branches keep their planned shares.
func (w *pathShares) updateShares() {
	nodeIndex := 0
	for a := range w.graphTables.Apps {
		app := &w.graphTables.Apps[a]
		for i := range app.Nodes {
			if n := &app.Nodes[i]; len(n.OutcomeChances) > 0 {
				w.updateNodeShares(int32(a), app, int32(i), w.outcomeShares[nodeIndex])
			}
			nodeIndex++
		}
	}
}

// updateNodeShares sets the shares of a node's outcomes (branches) from what was learned of the services that
// follow it. If nothing is known, they stay as planned.
func (w *pathShares) updateNodeShares(a int32, app *flow.Application, node int32, outcomeShares []float64) {
	n := &app.Nodes[node]
	c := w.table.CursorAtStart(a, predict.NoFeature)
	w.table.Advance(&c, w.tokens[n.Service])
	w.knownShares = w.table.NextChances(&c, w.knownShares[:0])
	if len(w.knownShares) == 0 {
		return
	}
	clear(outcomeShares)
	for _, k := range w.knownShares {
		outcomeShares[w.outcomeTo(app, n, k.Token)] += k.Chance
	}
}

// outcomeTo returns the outcome of a branch after which a token follows. For the end of the request, it returns an
// outcome that leads nowhere.
func (w *pathShares) outcomeTo(app *flow.Application, n *flow.Node, token int32) int32 {
	endOutcome := int32(0)
	for _, e := range n.Outputs {
		switch {
		case e.Outcome < 0:
		case w.tokens[app.Nodes[e.To].Service] == token:
			return e.Outcome
		case e.Outcome == endOutcome:
			endOutcome++
		}
	}
	return min(endOutcome, int32(len(n.OutcomeChances)-1))
}

// pathShare returns how often a request that is at a node takes a path.
func (w *pathShares) pathShare(app int, node int32, path []int32) float64 {
	pathShare, first, currentNode := 1.0, w.firstNodeShare(app), node
	for _, to := range path {
		for _, e := range w.graphTables.Apps[app].Nodes[currentNode].Outputs {
			if e.To == to && e.Outcome >= 0 {
				pathShare *= w.outcomeShares[first+int(currentNode)][e.Outcome]
			}
		}
		currentNode = to
	}
	return pathShare
}
