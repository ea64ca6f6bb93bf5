package pool

import (
	"slices"

	"inferplan/planner/pool/problem"
	"inferplan/planner/pool/templates"
	"inferplan/planner/stages"
)

// A plan is re-planned after the cluster, the mix of models or the profile changed a little. A device that
// already holds the blocks that the new plan wants there keeps them. A device that must load something moves.
// The new plan is the best one that moves no more devices than asked, and of those that are good enough one that
// moves few.

// replanState holds what a search knows of the plan that runs.
type replanState struct {
	problem         *problem.Problem
	catalogue       *templates.Catalogue
	heldByDevice    heldContents
	runningReplicas map[replicaContent]int   // by content, on all devices that are still there
	replicasByModel []map[replicaContent]int // by model: the replicas of its own pipelines
	maxMoved        float64                  // devices that may move
	pipelines       []planPipeline           // that may stay, with the replicas that are still there

	contentByID   []replicaContent
	idByContent   map[replicaContent]int
	stageContents [][]int // by template and stage: ids of contents, computed on demand

	numSearches int // searches made so far for a plan that moves no more than asked
}

// heldContents returns what each device holds (blocks, share and number of replicas). Without a plan that runs
// it returns nil.
func (s *replanState) heldContents() heldContents {
	if s == nil {
		return nil
	}
	return s.heldByDevice
}

// newReplanState reads the plan that runs. add is called with the template of each pipeline that still keeps
// its SLO, and returns its index. The state holds what is on each device, and the pipelines that can go on.
func newReplanState(p *problem.Problem, plan *problem.RunningPlan, add func(*stages.Template) int) *replanState {
	state := &replanState{problem: p, heldByDevice: emptyContents(p), runningReplicas: map[replicaContent]int{}, idByContent: map[replicaContent]int{}, maxMoved: plan.MaxMoved * float64(p.TotalDevices())}
	for range p.Models {
		state.replicasByModel = append(state.replicasByModel, map[replicaContent]int{})
	}

	// Put every pipeline on the devices, as far as they are still there.
	for i := range plan.Pipelines {
		running := &plan.Pipelines[i]
		t := running.Template
		t.Stages = slices.Clone(t.Stages)
		isPlannable := running.Model >= 0
		var heldReplicas []int
		for si, stage := range running.Stages {
			if stage.Pool < 0 || p.Pools[stage.Pool].TimeShared {
				isPlannable = false
				continue
			}
			n := 0
			content := replicaContent{running.Network, stage.FirstBlock, stage.EndBlock, stage.Pool, stage.Share}
			for _, run := range running.Placement[si] {
				n += state.heldByDevice.addRun(content, run)
			}
			state.runningReplicas[content] += n
			if running.Model >= 0 {
				state.replicasByModel[running.Model][content] += n
			}
			heldReplicas = append(heldReplicas, n)
		}
		// A pipeline goes on only if every stage of it still has a replica.
		if !isPlannable || slices.Contains(heldReplicas, 0) {
			continue
		}
		// A pipeline of another planner, or made under another SLO, may not keep the limits any more.
		if err := templates.Complete(p, &t); err == nil && templates.FitsMemory(p, &t) {
			state.pipelines = append(state.pipelines, planPipeline{template: add(&t), model: t.Model, replicas: heldReplicas})
		}
	}
	return state
}

// movedDevices returns how many devices, in parts, a plan has to load at least.
func (s *replanState) movedDevices(pipelines []planPipeline) float64 {
	return s.devicesBeyond(pipelines, s.runningReplicas)
}

// devicesBeyond returns how many devices, in fractions, the replicas of pipelines take beyond the given ones,
// which run already: so much has to be loaded.
func (s *replanState) devicesBeyond(pipelines []planPipeline, runningReplicas map[replicaContent]int) float64 {
	var buf [16]struct{ id, n int }
	wanted := buf[:0]

	// Add up the replicas of each content.
	for _, n := range pipelines {
		for si, id := range s.contentIDs(n.template) {
			i := slices.IndexFunc(wanted, func(s struct{ id, n int }) bool { return s.id == id })
			if i < 0 {
				i = len(wanted)
				wanted = append(wanted, struct{ id, n int }{id: id})
			}
			wanted[i].n += n.replicas[si]
		}
	}
	devices := 0.0
	for _, replicas := range wanted {
		content := s.contentByID[replicas.id]
		devices += float64(max(replicas.n-runningReplicas[content], 0)) / float64(content.share)
	}
	return devices
}

// contentIDs returns a number for the content (blocks, kind and share) of each stage of a template, equal for
// equal contents. They are computed once for each template.
func (s *replanState) contentIDs(template int) []int {
	for len(s.stageContents) <= template {
		s.stageContents = append(s.stageContents, nil)
	}
	if s.stageContents[template] == nil {
		t := &s.catalogue.Templates[template]
		for si := range t.Stages {
			content := contentOf(s.problem, t, si)
			id, ok := s.idByContent[content]
			if !ok {
				id = len(s.contentByID)
				s.idByContent[content], s.contentByID = id, append(s.contentByID, content)
			}
			s.stageContents[template] = append(s.stageContents[template], id)
		}
	}
	return s.stageContents[template]
}

// allowsMoves reports whether a plan moves no more devices than asked. Without a plan that runs it is true.
func (s *replanState) allowsMoves(plan *replicaPlan) bool {
	return s == nil || s.movedDevices(plan.pipelines) <= s.maxMoved+1e-9
}

// countLoading returns how many devices have to load something for an outcome's pipelines.
func (s *replanState) countLoading(pipelines []problem.Pipeline) int {
	wanted := emptyContents(s.problem)
	for i := range pipelines {
		pipeline := &pipelines[i]
		for si := range pipeline.Stages {
			if s.problem.Pools[pipeline.Stages[si].Pool].TimeShared {
				continue
			}
			for _, run := range pipeline.Placement[si] {
				wanted.addRun(contentOf(s.problem, &pipeline.Template, si), run)
			}
		}
	}
	return s.heldByDevice.devicesShortOf(wanted)
}

// readRunning reads the plan that runs. Templates of it that the catalogue lacks join it. If no plan runs, or a
// pool is time-shared, it returns nil.
func readRunning(c *templates.Catalogue, plan *problem.RunningPlan) *replanState {
	if plan == nil || c.Problem.HasTimeShared() {
		return nil
	}
	indexByKey := c.IndexByKey()
	state := newReplanState(c.Problem, plan, func(t *stages.Template) int {
		i, ok := indexByKey[t.Key()]
		if !ok {
			i = len(c.Templates)
			c.Templates, indexByKey[t.Key()] = append(c.Templates, *t), i
		}
		return i
	})
	state.catalogue = c
	return state
}
