package drop

import (
	"slices"

	"inferplan/policy"
	"inferplan/policy/flow"
	"inferplan/policy/predict"
)

// pathShares learns which outcome requests have at a branch: which share of them takes each. A token of the table is
// a module, by its service. What follows a branch is counted by the branch's token alone.
type pathShares struct {
	graphTables      *flow.GraphTables
	table            *predict.TransitionTable
	tokens           []int32               // by service: its token, the number of a kind of task in the table
	branchNodes      []int32               // [application * services + service]: the node that branches behind the service; -1 if none does
	followingService []int32               // by task slot: the service whose task reads it; -1 if none
	outcomeShares    [][]float64           // by node, counted over all applications: share of each outcome
	learntChances    []predict.TokenChance // scratch of updateNodeShares
	pathScratch      [2]int32              // scratch of learnFromBatch
}

// branchSkipsModules returns true if a branch of an application skips modules: one of its outcomes leads to all modules
// that another one leads to, and to more. Then rare paths can be much longer than usual ones, and feas learns the shares
// of paths.
func branchSkipsModules(graphTables *flow.GraphTables) bool {
	for appIndex := range graphTables.Apps {
		nodes := graphTables.Apps[appIndex].Nodes
		for i := range nodes {
			if reachable := nodesByOutcome(&nodes[i]); hasProperSubset(reachable) {
				return true
			}
		}
	}
	return false
}

// hasProperSubset reports whether all members of one of the sets (of nodes) are in another one, which has more.
func hasProperSubset(sets [][]int32) bool {
	for _, subset := range sets {
		for _, superset := range sets {
			isMissing := func(node int32) bool { return !slices.Contains(superset, node) }
			if len(subset) < len(superset) && !slices.ContainsFunc(subset, isMissing) {
				return true
			}
		}
	}
	return false
}

// nodesByOutcome returns, for each outcome of a node's branch, all nodes on the paths behind it, sorted. Edges
// without an outcome belong to every one.
func nodesByOutcome(node *flow.Node) [][]int32 {
	reachable := make([][]int32, len(node.OutcomeChances))

	// Add the nodes of each path to the outcomes that lead to its first node.
	for _, path := range node.Paths {
		if len(path) == 0 {
			continue
		}
		for _, edge := range node.Outputs {
			for outcome := range reachable {
				if edge.To == path[0] && (edge.Outcome < 0 || int(edge.Outcome) == outcome) {
					reachable[outcome] = append(reachable[outcome], path...)
				}
			}
		}
	}

	// Sort the nodes of each outcome, each once.
	for outcome := range reachable {
		slices.Sort(reachable[outcome])
		reachable[outcome] = slices.Compact(reachable[outcome])
	}
	return reachable
}

// newPathShares returns the shares of requests that take each outcome of the branches in a plan's applications, at
// first as planned. They are learnt from the requests, as pairs of a service and the service that follows. To the table
// of these pairs a service is a token, a number of its own. What follows a branch depends on the branch alone, so the
// last token of a path predicts the next (LastTokenOnly).
//
// outcomeShares has an element for each node of all applications, one application after another. branchNodes is by
// application and service, a row of all services for each application: the node at which the application branches
// behind the service, or -1.
func newPathShares(graphTables *flow.GraphTables) *pathShares {
	shares := &pathShares{graphTables: graphTables, table: predict.New(predict.Options{LastTokenOnly: true})}
	for service := range graphTables.Modules {
		shares.tokens = append(shares.tokens, shares.table.TokenNumber(int32(service), 0, nil))
	}

	// Find the branches, with their planned shares.
	for appIndex := range graphTables.Apps {
		branchOf := make([]int32, len(graphTables.Modules))
		for service := range branchOf {
			branchOf[service] = -1
		}
		for i := range graphTables.Apps[appIndex].Nodes {
			node := &graphTables.Apps[appIndex].Nodes[i]
			if len(node.OutcomeChances) > 0 {
				branchOf[node.Service] = int32(i)
			}
			shares.outcomeShares = append(shares.outcomeShares, slices.Clone(node.OutcomeChances))
		}
		shares.branchNodes = append(shares.branchNodes, branchOf...)
	}
	return shares
}

// firstNodeOf returns the index in outcomeShares of the first node of an application.
func (shares *pathShares) firstNodeOf(app int) int {
	offset := 0
	for earlierApp := range app {
		offset += len(shares.graphTables.Apps[earlierApp].Nodes)
	}
	return offset
}

// recordFollower records, when a task is revealed, that its service follows the tasks that it reads (ev.List). So it
// becomes known which branch these requests took. -1 means that nothing has followed a task yet. A nil receiver, where
// no shares are learnt, does nothing.
func (shares *pathShares) recordFollower(ev *policy.Event) {
	if shares == nil {
		return
	}
	for int(ev.Task) >= len(shares.followingService) {
		shares.followingService = append(shares.followingService, -1)
	}
	shares.followingService[ev.Task] = -1
	for _, input := range ev.List {
		if input >= 0 && int(input) < len(shares.followingService) {
			shares.followingService[input] = ev.Service
		}
	}
}

// learnFromBatch learns which branches the requests of a batch took, when it has ended and what follows its tasks has
// been revealed. Each task counts as a path of its service and the service that followed, if any. Tasks of services
// without branches teach nothing. A nil receiver, where no shares are learnt, does nothing.
func (shares *pathShares) learnFromBatch(tasks *flow.TaskTable, batch []flow.QueueEntry) {
	if shares == nil {
		return
	}
	for i := range batch {
		if !tasks.IsWanted(&batch[i]) {
			continue
		}

		// Only services behind which the application branches are of interest.
		task := &tasks.Tasks[batch[i].Task]
		app := tasks.Requests[batch[i].Req].Model
		if shares.branchNodes[int(app)*len(shares.tokens)+int(task.Service)] < 0 {
			continue
		}

		// Learn what followed the task, or that nothing did.
		shares.pathScratch[0] = shares.tokens[task.Service]
		path := shares.pathScratch[:1]
		if follower := shares.followingService[batch[i].Task]; follower >= 0 {
			shares.pathScratch[1] = shares.tokens[follower]
			path = shares.pathScratch[:2]
		}
		shares.table.Learn(app, predict.NoFeature, path, 1)
	}
}

// updateShares is called once per second, and computes the share of each outcome at all branches from the requests
// learnt so far. Branches of which nothing is known keep their planned shares. nodeIndex counts the nodes of all
// applications.
func (shares *pathShares) updateShares() {
	nodeIndex := 0
	for appIndex := range shares.graphTables.Apps {
		app := &shares.graphTables.Apps[appIndex]
		for i := range app.Nodes {
			if node := &app.Nodes[i]; len(node.OutcomeChances) > 0 {
				shares.updateNodeShares(int32(appIndex), app, int32(i), shares.outcomeShares[nodeIndex])
			}
			nodeIndex++
		}
	}
}

// updateNodeShares writes into outcomeShares which share of requests takes each outcome of a node of an application,
// from what was learnt of the services that follow it. The table knows services by numbers, the tokens. It predicts the
// next token by the last one alone, so a path that has only the node's own service as its token gives the chances of
// all that follow the node. The chance of a token is added to the outcome behind which its service stands. If nothing
// is known, the shares stay as planned.
func (shares *pathShares) updateNodeShares(appIndex int32, app *flow.Application, node int32, outcomeShares []float64) {
	nodeTable := &app.Nodes[node]
	cursor := shares.table.CursorAtStart(appIndex, predict.NoFeature)
	shares.table.Advance(&cursor, shares.tokens[nodeTable.Service])
	shares.learntChances = shares.table.NextChances(&cursor, shares.learntChances[:0])
	if len(shares.learntChances) == 0 {
		return
	}
	clear(outcomeShares)
	for _, tokenChance := range shares.learntChances {
		outcomeShares[shares.outcomeOf(app, nodeTable, tokenChance.Token)] += tokenChance.Chance
	}
}

// outcomeOf returns the outcome of a branch (a node of an application) that leads to the service of a token, the number
// by which the transition table knows that service. If no outcome leads there, as for the token of a request's end, it
// returns the first outcome that leads nowhere (has no edge), or the last one if all lead somewhere.
func (shares *pathShares) outcomeOf(app *flow.Application, branch *flow.Node, token int32) int32 {
	for _, edge := range branch.Outputs {
		if edge.Outcome >= 0 && shares.tokens[app.Nodes[edge.To].Service] == token {
			return edge.Outcome
		}
	}
	lastOutcome := int32(len(branch.OutcomeChances) - 1)
	for outcome := range lastOutcome {
		if !slices.ContainsFunc(branch.Outputs, func(edge flow.Edge) bool { return edge.Outcome == outcome }) {
			return outcome
		}
	}
	return lastOutcome
}

// pathShare returns which share of the requests of an application that are at a node take a path (node indexes) from
// there: the product of the shares of the outcomes on it. Edges without an outcome are taken by all.
func (shares *pathShares) pathShare(app int, node int32, path []int32) float64 {
	share, firstNode, currentNode := 1.0, shares.firstNodeOf(app), node
	for _, nextNode := range path {
		for _, edge := range shares.graphTables.Apps[app].Nodes[currentNode].Outputs {
			if edge.To == nextNode && edge.Outcome >= 0 {
				share *= shares.outcomeShares[firstNode+int(currentNode)][edge.Outcome]
			}
		}
		currentNode = nextNode
	}
	return share
}
