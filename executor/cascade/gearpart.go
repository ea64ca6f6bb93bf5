package cascade

import "inferplan/formats/served"

// Part implements turn.Answerer: the gear in force, and what came under each gear.
func (g *CascadeAnswerer) Part() served.Part {
	part := &served.Gear{InForce: int(g.gear), Switches: g.counts.switches}
	for i := range g.gears.Gears {
		row := served.GearState{ToRPS: g.gears.Gears[i].ToQPS, Requests: g.counts.requests[i]}
		for k := range g.gears.Gears[i].Stages {
			stage := &g.gears.Gears[i].Stages[k]
			answers := int64(0)
			for _, pipeline := range stage.AllPipelines() {
				answers += g.counts.answers[i][pipeline]
			}
			row.Models, row.Answers = append(row.Models, g.gears.PipelineModels[stage.Pipeline]), append(row.Answers, answers)
		}
		part.Gears = append(part.Gears, row)
	}
	return part
}

// logSwitches notes in the log for debugging that another gear is in force than a second ago.
func (g *CascadeAnswerer) logSwitches() {
	if n := g.counts.switches - g.loggedSwitches; g.gear != g.loggedGear {
		g.Core.Options.Log.Debug("gear switched", "from", g.loggedGear, "to", g.gear, "changes", n)
		g.loggedGear, g.loggedSwitches = g.gear, g.counts.switches
	}
}
