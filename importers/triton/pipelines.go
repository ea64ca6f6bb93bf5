package triton

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"inferplan/formats"
	"inferplan/formats/document"
)

// deployed returns the parts as a deployment: of whole models a pipeline for each batch size, device kind and share, and
// a pipeline for all parts of one.
func (r *reader) deployed() ([]formats.Deployed, error) {
	var list []formats.Deployed
	for _, p := range r.parts {
		i := slices.IndexFunc(list, func(d formats.Deployed) bool { return d.Key() == p.identity.model })
		if i < 0 {
			i, list = len(list), append(list, formats.Deployed{Model: p.identity.model.Model, Class: p.identity.model.Class})
		}
		d := &list[i]
		if p.identity.pipeline == "" {
			r.addWhole(d, p)
			continue
		}
		first := slices.IndexFunc(r.parts, func(o *part) bool {
			return o.identity.model == p.identity.model && o.identity.pipeline == p.identity.pipeline
		})
		if r.parts[first] != p {
			continue // the pipeline was added with its first part
		}
		pipeline, err := r.stagedPipeline(p)
		if err != nil {
			return nil, err
		}
		if len(pipeline.Stages) > 0 { // instances that are passive are none
			d.Pipelines = append(d.Pipelines, pipeline)
		}
	}
	for i := range list {
		for k := range list[i].Pipelines {
			for n := range list[i].Pipelines[k].Stages {
				mergePlaces(&list[i].Pipelines[k].Stages[n])
			}
		}
	}
	return list, nil
}

// addWhole adds the instances of a whole model to the pipelines of a deployed model.
func (r *reader) addWhole(d *formats.Deployed, p *part) {
	for _, in := range p.instances {
		device := r.pools[in.device.Pool].Device
		i := slices.IndexFunc(d.Pipelines, func(l formats.Pipeline) bool {
			s := &l.Stages[0]
			return len(l.Stages) == 1 && s.Blocks == [2]int{} && l.Batch == p.batch && s.Device == device && s.Share == in.share
		})
		if i < 0 {
			i, d.Pipelines = len(d.Pipelines), append(d.Pipelines, formats.Pipeline{Batch: p.batch, Stages: []formats.Stage{{Device: device, Share: in.share}}})
		}
		addInstances(&d.Pipelines[i].Stages[0], in)
	}
}

// stagedPipeline returns the pipeline of a part, with all its parts as stages. Its batch is the smallest of a part.
// An error says which part has instances on several kinds of devices or shares, which a stage has not.
func (r *reader) stagedPipeline(first *part) (formats.Pipeline, error) {
	pipeline := formats.Pipeline{Batch: first.batch}
	for _, p := range r.parts {
		if p.identity.model != first.identity.model || p.identity.pipeline != first.identity.pipeline {
			continue
		}
		if p.batch != pipeline.Batch {
			pipeline.Batch = min(pipeline.Batch, p.batch)
			r.note("the parts of %s have different batch sizes: planned with the smallest", first.identity.model)
		}
		i := slices.IndexFunc(pipeline.Stages, func(s formats.Stage) bool { return s.Blocks == p.identity.blocks })
		for _, in := range p.instances {
			device := r.pools[in.device.Pool].Device
			if i < 0 {
				i, pipeline.Stages = len(pipeline.Stages), append(pipeline.Stages, formats.Stage{Blocks: p.identity.blocks, Device: device, Share: in.share})
			}
			s := &pipeline.Stages[i]
			if s.Device != device || s.Share != in.share {
				return pipeline, &document.Error{File: p.File, Path: "instance_group", Found: fmt.Sprintf("instances on 1/%d of %s and 1/%d of %s", s.Share, s.Device, in.share, device),
					Expected: "instances on equal shares of one kind of device: they are a stage of " + first.identity.model.String()}
			}
			addInstances(s, in)
		}
	}
	slices.SortFunc(pipeline.Stages, func(a, b formats.Stage) int { return cmp.Compare(a.Blocks[0], b.Blocks[0]) })

	// The stages must follow one another.
	end := 0
	for i := range pipeline.Stages {
		if pipeline.Stages[i].Blocks[0] != end {
			ranges := document.Map(pipeline.Stages, func(s *formats.Stage) string { return fmt.Sprintf("%d-%d", s.Blocks[0], s.Blocks[1]) })
			return pipeline, &document.Error{File: first.File, Found: "parts of " + first.identity.model.String() + " with the blocks " + strings.Join(ranges, ", "), Expected: "parts that follow one another from block 0 on",
				Hint: "all hosts of a pipeline have to be among the repositories"}
		}
		end = pipeline.Stages[i].Blocks[1]
	}
	return pipeline, nil
}

// addInstances adds the instances on a device to the places of a stage.
func addInstances(s *formats.Stage, in instances) {
	s.Replicas += in.count
	i := slices.IndexFunc(s.Placement, func(p formats.Placement) bool { return p.FirstDevice == in.device.Number })
	if i < 0 {
		s.Placement = append(s.Placement, formats.Placement{FirstDevice: in.device.Number, PerDevice: in.count, Replicas: in.count})
		return
	}
	s.Placement[i].PerDevice += in.count
	s.Placement[i].Replicas += in.count
}

// mergePlaces sorts the places of a stage, and makes one of those on neighbouring devices with as many replicas.
func mergePlaces(s *formats.Stage) {
	slices.SortFunc(s.Placement, func(a, b formats.Placement) int { return cmp.Compare(a.FirstDevice, b.FirstDevice) })
	var merged []formats.Placement
	for _, p := range s.Placement {
		if n := len(merged); n > 0 && merged[n-1].PerDevice == p.PerDevice && merged[n-1].FirstDevice+merged[n-1].DeviceCount() == p.FirstDevice {
			merged[n-1].Replicas += p.Replicas
			continue
		}
		merged = append(merged, p)
	}
	s.Placement = merged
}
