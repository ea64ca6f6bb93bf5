package turn

import "inferplan/formats/served"

// Part implements Answerer: the pipelines of the plan with their devices.
func (d DirectAnswerer) Part() served.Part {
	c, part := d.Core, &served.Pool{}
	for i := range c.Tables.Pipelines {
		pipeline := &c.Tables.Pipelines[i]
		row := served.Pipeline{Batch: int(pipeline.Batch), PromisedRPS: pipeline.RPS}
		if pipeline.Model >= 0 {
			row.Model = c.Tables.Models[pipeline.Model].Key().String()
		}
		for s := pipeline.FirstStage; s < pipeline.FirstStage+pipeline.NumStages; s++ {
			devices := c.Tables.DevicesOf(s)
			stage := served.Stage{Devices: len(devices)}
			for _, device := range devices {
				stage.DeviceKind = c.Tables.Kinds[c.Tables.Devices[device].Kind]
				if c.Backends.BackendOf(device).IsUp(device) {
					stage.Up++
				}
			}
			row.Stages = append(row.Stages, stage)
		}
		part.Pipelines = append(part.Pipelines, row)
	}
	return part
}
