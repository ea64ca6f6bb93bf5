package deploy

import (
	"cmp"
	"context"
	"errors"
	"math"
	"slices"
)

// Search looks for layouts of a problem.
type Search struct {
	Problem      *Problem
	Estimators   *Estimators
	Plans        *PlanWriter
	Trials       *Trials
	useClassCaps bool                // the run-time policy obeys caps of classes
	byFactor     map[float64]*Search // at multiples of the rates, see JudgeAt
}

// NewSearch returns a search for layouts of a problem that has tried nothing yet, with its estimators of
// request times, its simulations and the writer of plans.
func NewSearch(p *Problem) *Search {
	estimators := &Estimators{problem: p, cache: map[estimateKey]*estimate{}}
	plans := &PlanWriter{problem: p, estimators: estimators}
	trials := &Trials{problem: p, estimators: estimators, plans: plans, scores: map[string]Score{}}
	return &Search{Problem: p, Estimators: estimators, Plans: plans, Trials: trials}
}

// Structure says which items share a pool: a list of items for each.
type Structure [][]int

// SearchOptions choose the structures that a search tries.
type SearchOptions struct {
	// SeparateModels gives every model a pool of its own, and tries nothing else.
	SeparateModels bool
	// SeparateClasses also tries pools of one class, and caps of classes within a pool. With
	// OnlySeparateClasses only pools of one class are tried.
	SeparateClasses, OnlySeparateClasses bool
	// FirstFeasible accepts the first layout that keeps the SLOs, whatever its price.
	FirstFeasible bool
}

// minOwnPoolShare is the least number of instances that a model must keep busy to get a pool of its own.
const minOwnPoolShare = 0.5

// modelsByLoad returns the models, those with the highest load first, and by model that load: how many instances its rates keep busy on
// the kind of servers where that is least.
func (p *Search) modelsByLoad() (models []int, busyInstances []float64, err error) {
	busyInstances = make([]float64, len(p.Problem.Models))
	for m := range p.Problem.Models {
		models = append(models, m)
		rps := 0.0
		for _, i := range p.Problem.itemsOf(m) {
			rps += p.Problem.Items[i].RPS
		}
		minBusy := math.Inf(1)
		for k := range p.Problem.Kinds {
			if p.Problem.Models[m].ByKind[k] == nil {
				continue
			}
			requestTime, err := p.Estimators.requestTime(m, k, p.Problem.maxSequences(m, k))
			if err != nil {
				return nil, nil, err
			}
			minBusy = min(minBusy, rps*requestTime)
		}
		busyInstances[m] = minBusy
	}
	slices.SortStableFunc(models, func(a, b int) int { return cmp.Compare(busyInstances[b], busyInstances[a]) })
	return models, busyInstances, nil
}

// listStructures returns the structures that a search tries. A structure lists the items (classes of requests for a model) that share
// each pool of instances: first all in one pool; then the models with the highest load in pools of their own, one more each time; then
// each of these with the most urgent class in a pool of its own, if the options ask for that (SeparateClasses). With SeparateModels there
// is only the one in which every model has a pool of its own. It also sets whether the search may limit classes within a pool
// (useClassCaps).
func (p *Search) listStructures(o SearchOptions) ([]Structure, error) {
	p.useClassCaps = o.SeparateClasses && !o.OnlySeparateClasses
	models, busyInstances, err := p.modelsByLoad()
	if err != nil {
		return nil, err
	}
	var structures []Structure

	// The first ownPools models by load have pools of their own, the others share one.
	for ownPools := 0; ownPools <= len(models); ownPools++ {
		allApart := ownPools == len(models)
		if o.SeparateModels && !allApart {
			continue
		}
		if ownPools == len(models)-1 && ownPools > 0 {
			continue // the single other model has a pool of its own anyway, as with one more
		}

		// A model that keeps less than half an instance busy gets no pool of its own, unless all models do.
		if !o.SeparateModels && ownPools > 0 && !allApart && busyInstances[models[ownPools-1]] < minOwnPoolShare {
			continue
		}
		var s Structure
		for _, m := range models[:ownPools] {
			s = append(s, p.Problem.itemsOf(m))
		}
		var otherItems []int
		for _, m := range models[ownPools:] {
			otherItems = append(otherItems, p.Problem.itemsOf(m)...)
		}
		if slices.Sort(otherItems); len(otherItems) > 0 {
			s = append(s, otherItems)
		}
		structures = append(structures, s)
	}

	// Add the same structures with the most urgent class separated, if the options ask for that.
	if o.SeparateClasses && !o.SeparateModels {
		if separated := p.Problem.separateUrgentClass(structures); o.OnlySeparateClasses {
			structures = separated
		} else {
			structures = append(structures, separated...)
		}
	}
	return structures, nil
}

// searchStructures calls judge for each structure (which items, classes of requests for a model, share a pool), and returns the result of
// the lowest price. judge makes the layout; it is given the lowest price so far, above which no layout is of use, and returns nil or
// ErrTooFewDevices if it finds none. The search ends at minPrice, a lower bound on all prices, or at the first layout with
// o.FirstFeasible. If ctx ends, it returns the best so far, or the error if there is none. onBetter is called with every better layout;
// it may be nil.
func (p *Search) searchStructures(ctx context.Context, o SearchOptions, minPrice float64, judge func(s Structure, maxPrice float64) (*LayoutResult, error), onBetter func(*LayoutResult)) (*LayoutResult, error) {
	list, err := p.listStructures(o)
	if err != nil {
		return nil, err
	}
	var bestResult *LayoutResult
	maxPrice := math.Inf(1)
	for _, s := range list {
		f, err := judge(s, maxPrice)
		if errors.Is(err, ErrTooFewDevices) {
			continue
		}
		if err != nil {
			if bestResult == nil || ctx.Err() == nil {
				return nil, err
			}
			break
		}
		if f != nil && f.Price < maxPrice-1e-12 {
			if bestResult, maxPrice = f, f.Price; onBetter != nil {
				onBetter(f)
			}
		}
		if bestResult != nil && (o.FirstFeasible || maxPrice <= minPrice*(1+1e-9)) {
			break
		}
	}
	if bestResult == nil {
		return nil, ErrTooFewDevices
	}
	bestResult.Simulations = len(p.Trials.scores)
	return bestResult, nil
}

// separateUrgentClass returns copies of the structures (lists of the items that share each pool) in which every pool of a single model is
// divided in two: the class with the shortest SLO, and the others. Structures in which no pool can be divided are left out.
func (p *Problem) separateUrgentClass(list []Structure) []Structure {
	var separated []Structure
	for _, s := range list {
		var divided Structure
		anyDivided := false
		for _, items := range s {
			urgentItems, otherItems := p.splitUrgentClass(items)
			if len(p.ModelsOf(items)) > 1 || len(otherItems) == 0 {
				divided = append(divided, items)
				continue
			}
			divided, anyDivided = append(divided, urgentItems, otherItems), true
		}
		if anyDivided {
			separated = append(separated, divided)
		}
	}
	return separated
}

// HasModelOfClasses returns whether some model has requests of several classes, which may have pools of their own.
func (p *Problem) HasModelOfClasses() bool {
	for m := range p.Models {
		if _, otherItems := p.splitUrgentClass(p.itemsOf(m)); len(otherItems) > 0 {
			return true
		}
	}
	return false
}

// splitUrgentClass divides items into those of the class with the shortest SLO and the others.
func (p *Problem) splitUrgentClass(items []int) (urgentItems, otherItems []int) {
	mostUrgent := items[0]
	for _, i := range items {
		if p.Classes[p.Items[i].Class].SLO < p.Classes[p.Items[mostUrgent].Class].SLO {
			mostUrgent = i
		}
	}
	for _, i := range items {
		if p.Items[i].Class == p.Items[mostUrgent].Class {
			urgentItems = append(urgentItems, i)
		} else {
			otherItems = append(otherItems, i)
		}
	}
	return urgentItems, otherItems
}

// newPool returns a pool without instances for some items (classes of requests for a model), with the caps at which a search starts: by
// kind of servers and model, the largest number of concurrent sequences with which a request of mean length takes at most half of its
// SLO, so that it may wait as long. If none is low enough, it is the smallest cap.
func (p *Search) newPool(items []int) (Pool, error) {
	x := Pool{Items: items, Counts: make([]int, len(p.Problem.Kinds)), Caps: make([][]int, len(p.Problem.Kinds)), ClassCaps: make([]int, len(p.Problem.Classes))}
	for k := range p.Problem.Kinds {
		x.Caps[k] = make([]int, len(p.Problem.Models))
		for _, m := range p.Problem.ModelsOf(items) {
			if p.Problem.Models[m].ByKind[k] == nil {
				continue
			}
			caps := p.Problem.capsOf(m, k)
			x.Caps[k][m] = caps[0]
			for _, c := range caps {
				e, err := p.Estimators.estimateFor(m, k, c)
				if err != nil {
					return x, err
				}
				if p.fitsHalfSLO(items, m, e) {
					x.Caps[k][m] = c
				}
			}
		}
	}
	return x, nil
}

// emptyLayout returns the layout of a structure: a pool for each group of items, without instances.
func (p *Search) emptyLayout(s Structure) (*Layout, error) {
	l := &Layout{}
	for _, items := range s {
		x, err := p.newPool(items)
		if err != nil {
			return nil, err
		}
		l.Pools = append(l.Pools, x)
	}
	return l, nil
}

// fitsHalfSLO returns whether a mean request of every class of a model is done within half of its SLO in a full batch. The estimator e is
// fitted to batches of some number of sequences, so its times are those beside as many others. items are those of the pool; the items of
// other models are skipped.
func (p *Search) fitsHalfSLO(items []int, model int, e *estimate) bool {
	for _, i := range items {
		if p.Problem.Items[i].Model != model {
			continue
		}
		c := &p.Problem.Classes[p.Problem.Items[i].Class]
		prompt, output, _ := lengthMoments(c.Sample)

		// The expected figure by which the class is judged, in seconds: the time of the whole answer, to its first token, or per token.
		// Prefill is the time until the first token of a prompt of mean length, Decode that per token of the answer.
		expected := e.rct.Prefill + e.rct.Decode*output
		switch c.Figure {
		case "ttft":
			expected = e.rct.Prefill * prompt / max(e.rct.PromptMean, 1)
		case "tpot":
			expected = 1.5 * e.rct.Decode
		}
		if expected > c.SLO.Seconds()/2 {
			return false
		}
	}
	return true
}

// identicalModels returns the models of a pool in groups that have the same costs and memory on a kind of servers. The models of a group
// share a cap (a limit on the sequences that run at once), so that the search has fewer to try.
func (p *Problem) identicalModels(x *Pool, kind int) [][]int {
	var groups [][]int
	for _, m := range p.ModelsOf(x.Items) {
		instance := p.Models[m].ByKind[kind]
		if instance == nil {
			continue
		}
		index := slices.IndexFunc(groups, func(g []int) bool {
			o := p.Models[g[0]].ByKind[kind]
			return o.Iteration == instance.Iteration && o.KVTokens == instance.KVTokens && o.Sequences == instance.Sequences
		})
		if index < 0 {
			groups = append(groups, []int{m})
		} else {
			groups[index] = append(groups[index], m)
		}
	}
	return groups
}
