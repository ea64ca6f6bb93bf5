package placement

import (
	"slices"

	"inferplan/planner/lists"
	"inferplan/planner/pool/problem"
	"inferplan/planner/pool/templates"
	"inferplan/planner/stages"
)

// A plan is re-planned after the cluster, the mix of models or the profile changed a little. A device that
// already holds the blocks that the new plan wants there keeps them. A device that must load something moves.
// The new plan is the best one that moves no more devices than asked, and of those that are good enough one that
// moves few.

// RunningState holds what a search knows of the plan that runs.
type RunningState struct {
	problem         *problem.Problem
	catalogue       *templates.Catalogue
	heldByDevice    Contents
	RunningReplicas map[Content]int   // by content, on all devices that are still there
	ReplicasByModel []map[Content]int // by model: the replicas of its own pipelines
	MaxMoved        float64           // devices that may move
	Pipelines       []PlanPipeline    // that may stay, with the replicas that are still there

	contentByID   []Content
	idByContent   map[Content]int
	stageContents [][]int // by template and stage: ids of contents, computed on demand

	NumSearches int // searches made so far for a plan that moves no more than asked
}

// HeldContents returns, by pool and device, the contents (blocks and share) that the plan which runs has there, with
// the number of replicas of each. If no plan runs (s is nil), it returns nil.
func (s *RunningState) HeldContents() Contents {
	if s == nil {
		return nil
	}
	return s.heldByDevice
}

// NewRunningState reads the plan that runs, before a search for a new plan that moves few devices. The state holds the
// contents of each device that is still there, and the pipelines that can go on: all stages still have a replica, and
// the SLO and the memory are kept. Their RPS is 0, as it follows from the replicas. add is called with the template of
// each such pipeline and returns its index in the catalogue. The state's catalogue is left for the caller to set.
func NewRunningState(p *problem.Problem, plan *problem.RunningPlan, add func(*stages.Template) int) *RunningState {
	state := &RunningState{problem: p, heldByDevice: emptyContents(p), RunningReplicas: map[Content]int{}, idByContent: map[Content]int{}, MaxMoved: plan.MaxMoved * float64(p.TotalDevices())}
	state.ReplicasByModel = lists.Map(len(p.Models), func(int) map[Content]int { return map[Content]int{} })

	// Put every pipeline on the devices, as far as they are still there, even if it cannot go on. A model or pool of -1
	// is no longer part of the problem.
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
			content := Content{running.Network, stage.FirstBlock, stage.EndBlock, stage.Pool, stage.Share}
			n := lists.Sum(len(running.Placement[si]), func(i int) int { return state.heldByDevice.addRun(content, running.Placement[si][i]) })
			state.RunningReplicas[content] += n
			if running.Model >= 0 {
				state.ReplicasByModel[running.Model][content] += n
			}
			heldReplicas = append(heldReplicas, n)
		}
		// A pipeline goes on only if every stage of it still has a replica.
		if !isPlannable || slices.Contains(heldReplicas, 0) {
			continue
		}
		// A pipeline of another planner, or made under another SLO, may not keep the limits any more.
		if err := templates.Complete(p, &t); err == nil && templates.FitsMemory(p, &t) {
			state.Pipelines = append(state.Pipelines, PlanPipeline{Template: add(&t), Model: t.Model, Replicas: heldReplicas})
		}
	}
	return state
}

// MovedDevices returns how many devices a plan moves (makes load something) at least, in fractions by the shares of the
// replicas that do not run yet, wherever they are placed.
func (s *RunningState) MovedDevices(pipelines []PlanPipeline) float64 {
	return s.DevicesBeyond(pipelines, s.RunningReplicas)
}

// DevicesBeyond returns how many devices, in fractions by share, have to load something for some pipelines: those that
// their replicas take beyond the ones that run already. runningReplicas has the number of these by content (blocks of a
// network on a share of a device). Searches call it often, so a list on the stack stands in for a map.
func (s *RunningState) DevicesBeyond(pipelines []PlanPipeline, runningReplicas map[Content]int) float64 {
	var buf [16]struct{ id, n int } // id of a content, and its number of replicas
	wanted := buf[:0]

	// Add up the replicas of each content.
	for _, pipeline := range pipelines {
		for si, id := range s.contentIDs(pipeline.Template) {
			i := slices.IndexFunc(wanted, func(s struct{ id, n int }) bool { return s.id == id })
			if i < 0 {
				i = len(wanted)
				wanted = append(wanted, struct{ id, n int }{id: id})
			}
			wanted[i].n += pipeline.Replicas[si]
		}
	}

	// Of each content, the replicas beyond the running ones take their shares of devices.
	devices := 0.0
	for _, replicas := range wanted {
		content := s.contentByID[replicas.id]
		devices += float64(max(replicas.n-runningReplicas[content], 0)) / float64(content.Share)
	}
	return devices
}

// contentIDs returns, by stage of a template (by its index in the catalogue), the id of the stage's content (blocks of a
// network, pool and share): its index in contentByID. Equal contents have equal ids, so they are compared as numbers. The
// ids of a template are computed, and its contents numbered, when it is first asked for.
func (s *RunningState) contentIDs(template int) []int {
	for len(s.stageContents) <= template {
		s.stageContents = append(s.stageContents, nil)
	}
	if s.stageContents[template] == nil {
		t := &s.catalogue.Templates[template]
		for si := range t.Stages {
			content := ContentOf(s.problem, t, si)
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

// AllowsMoves reports whether a plan moves (makes load something) no more devices, in fractions by share, than MaxMoved.
// If no plan runs (s is nil), it is true.
func (s *RunningState) AllowsMoves(plan *Plan) bool {
	return s == nil || s.MovedDevices(plan.Pipelines) <= s.MaxMoved+1e-9
}

// CountLoading returns how many whole devices have to load something for the pipelines of a finished plan, by their
// places on devices. It may be more than MovedDevices, which counts shares. Time-shared pools do not count.
func (s *RunningState) CountLoading(pipelines []problem.Pipeline) int {
	// The contents that each device shall hold, against those that it holds.
	wanted := emptyContents(s.problem)
	for i := range pipelines {
		pipeline := &pipelines[i]
		for si := range pipeline.Stages {
			if s.problem.Pools[pipeline.Stages[si].Pool].TimeShared {
				continue
			}
			for _, run := range pipeline.Placement[si] {
				wanted.addRun(ContentOf(s.problem, &pipeline.Template, si), run)
			}
		}
	}
	return s.heldByDevice.devicesShortOf(wanted)
}

// ReadRunning returns the state of the plan that runs: the contents of devices and the pipelines that can go on, from
// which a search makes a plan that moves few devices. Templates of these pipelines that the catalogue lacks are appended
// to it. If no plan runs (plan is nil), or a pool is time-shared, it returns nil.
func ReadRunning(c *templates.Catalogue, plan *problem.RunningPlan) *RunningState {
	if plan == nil || c.Problem.HasTimeShared() {
		return nil
	}
	indexByKey := c.IndexByKey()
	state := NewRunningState(c.Problem, plan, func(t *stages.Template) int {
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
