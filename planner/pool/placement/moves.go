package placement

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

// Contents returns what each device holds (blocks, share and number of replicas). Without a plan that runs
// it returns nil.
func (s *RunningState) HeldContents() Contents {
	if s == nil {
		return nil
	}
	return s.heldByDevice
}

// NewRunningState reads the plan that runs. add is called with the template of each pipeline that still keeps
// its SLO, and returns its index. The state holds what is on each device, and the pipelines that can go on.
func NewRunningState(p *problem.Problem, plan *problem.RunningPlan, add func(*stages.Template) int) *RunningState {
	state := &RunningState{problem: p, heldByDevice: emptyContents(p), RunningReplicas: map[Content]int{}, idByContent: map[Content]int{}, MaxMoved: plan.MaxMoved * float64(p.TotalDevices())}
	for range p.Models {
		state.ReplicasByModel = append(state.ReplicasByModel, map[Content]int{})
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
			content := Content{running.Network, stage.FirstBlock, stage.EndBlock, stage.Pool, stage.Share}
			for _, run := range running.Placement[si] {
				n += state.heldByDevice.addRun(content, run)
			}
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

// MovedDevices returns how many devices, in parts, a plan has to load at least.
func (s *RunningState) MovedDevices(pipelines []PlanPipeline) float64 {
	return s.DevicesBeyond(pipelines, s.RunningReplicas)
}

// DevicesBeyond returns how many devices, in fractions, the replicas of pipelines take beyond the given ones,
// which run already: so much has to be loaded.
func (s *RunningState) DevicesBeyond(pipelines []PlanPipeline, runningReplicas map[Content]int) float64 {
	var buf [16]struct{ id, n int }
	wanted := buf[:0]

	// Add up the replicas of each content.
	for _, n := range pipelines {
		for si, id := range s.contentIDs(n.Template) {
			i := slices.IndexFunc(wanted, func(s struct{ id, n int }) bool { return s.id == id })
			if i < 0 {
				i = len(wanted)
				wanted = append(wanted, struct{ id, n int }{id: id})
			}
			wanted[i].n += n.Replicas[si]
		}
	}
	devices := 0.0
	for _, replicas := range wanted {
		content := s.contentByID[replicas.id]
		devices += float64(max(replicas.n-runningReplicas[content], 0)) / float64(content.Share)
	}
	return devices
}

// contentIDs returns a number for the content (blocks, kind and share) of each stage of a template, equal for
// equal contents. They are computed once for each template.
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

// AllowsMoves reports whether a plan moves no more devices than asked. Without a plan that runs it is true.
func (s *RunningState) AllowsMoves(plan *Plan) bool {
	return s == nil || s.MovedDevices(plan.Pipelines) <= s.MaxMoved+1e-9
}

// CountLoading returns how many devices have to load something for an outcome's pipelines.
func (s *RunningState) CountLoading(pipelines []problem.Pipeline) int {
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

// ReadRunning reads the plan that runs. Templates of it that the catalogue lacks join it. If no plan runs, or a
// pool is time-shared, it returns nil.
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
