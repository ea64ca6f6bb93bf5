package profiler

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"inferplan/formats"
	"inferplan/formats/document"
)

// adoptCuts looks up every model of the run in the profile that it extends. A model that the profile has keeps its
// cuts and measurements there, unless its file, its inputs or the number of blocks changed. If numbers of another
// device depend on the old cuts, a change is an error without Options.Force. It fills entry, the profile's new entry
// of each model, and cut, where the model is cut into blocks. A model whose cut stays nil is cut anew by prepare.
func (r *runner) adoptCuts() error {
	// Numbers of this kind of device are stale if another engine, driver or method measured them.
	current := provenance(r.dev, r.options.Engine.Info(), r.options, r.begun)
	stale := false
	for _, d := range r.profile.Devices {
		if d.Device == r.dev.Kind && !sameProvenance(d, current) {
			stale = true
			r.progress.warn("", fmt.Sprintf("%s was measured with %s: what is asked for is measured again, and numbers of other models on it are no longer comparable",
				d.Device, describeDevice(d)))
		}
	}

	// Find each model in the profile, and decide whether its cuts and numbers stay.
	for _, j := range r.jobs {
		entry := &formats.ProfileModel{
			Model: j.info.name, Source: &formats.ModelSource{Path: relativeTo(r.options.OutPath, j.info.path), SHA256: j.info.sha256, Weights: j.info.files},
			Inputs: inputInfos(&j.info), Outputs: outputInfos(&j.info), Bucket: j.info.bucket, Constants: constantInfos(j.info.constants), Operators: j.info.operators,
		}
		j.entry = entry
		known := findModel(r.profile, entry)
		if known != nil {
			j.oldMeasurements = slices.Clone(known.Measurements)
		}
		switch {
		case known == nil:
			r.cutLikeOther(j)
			continue
		case !sameSource(known, entry):
			r.progress.warn(j.info.name, fmt.Sprintf("%s: the file differs from the one that was measured: its old numbers are replaced", j.info.name))
			continue
		}

		// Numbers of other devices belong to the same cuts, so these are not changed without --force.
		otherDevices := slices.ContainsFunc(known.Measurements, func(m formats.Measurement) bool { return m.Device != r.dev.Kind })
		wantedBlocks := min(r.options.Blocks, j.m.atomCount())
		if r.options.Ranges.OnlyRanges {
			wantedBlocks = len(known.Blocks) // ranges are of the blocks that the profile has
		}
		if len(known.Blocks) != wantedBlocks {
			if otherDevices && !r.options.Force {
				return inputError("%s is cut into %d blocks in the profile, which holds numbers of another device for them; %d were asked for: use --blocks %d, or --force to drop them",
					j.info.name, len(known.Blocks), wantedBlocks, len(known.Blocks))
			}
			r.progress.warn(j.info.name, fmt.Sprintf("%s: cut into %d blocks instead of %d: its old numbers are replaced", j.info.name, wantedBlocks, len(known.Blocks)))
			continue
		}
		if knownInputs, currentInputs := describeInputs(known), describeInputs(entry); known.Inputs != nil && knownInputs != currentInputs {
			if otherDevices && !r.options.Force {
				return inputError("%s was measured with inputs %s in the profile, %s were asked for: write another profile (-o), or --force to drop the old numbers",
					j.info.name, knownInputs, currentInputs)
			}
			r.progress.warn(j.info.name, fmt.Sprintf("%s: inputs %s instead of %s: its old numbers are replaced", j.info.name, currentInputs, knownInputs))
			continue
		}
		cut, err := j.m.cutAt(cutNames(known.Blocks))
		if err != nil {
			if otherDevices && !r.options.Force {
				return fmt.Errorf("%w: the profile's blocks of %s cannot be made again: %w (--force cuts it anew and drops what was measured)", ErrInput, j.info.name, err)
			}
			r.progress.warn(j.info.name, fmt.Sprintf("%s: cut anew, its old numbers are replaced: %v", j.info.name, err))
			continue
		}

		// Keep the cuts and the numbers.
		j.cut, j.hasProfileCut = cut, true
		entry.Blocks = slices.Clone(known.Blocks)
		if !stale {
			entry.FP16 = known.FP16
		}
		entry.Measurements = slices.Clone(known.Measurements)
		if stale {
			dropMeasurements(entry, r.dev.Kind)
		}
	}
	return nil
}

// cutLikeOther cuts a model at the same places as another profile, Options.CutsFrom, has it cut, so that the two can
// be compared. If that profile was measured with the same file, its data on the blocks are copied, too. A model that
// it does not have is cut anew, with a warning. Without that option it does nothing.
func (r *runner) cutLikeOther(j *modelJob) {
	if r.options.CutsFrom == nil {
		return
	}
	other := r.options.CutsFrom.FindModel(j.info.name)
	if other == nil {
		r.progress.warn(j.info.name, j.info.name+": the profile whose cuts are asked for does not hold it: it is cut anew")
		return
	}
	cut, err := j.m.cutAt(cutNames(other.Blocks))
	if err != nil {
		r.progress.warn(j.info.name, fmt.Sprintf("%s: cut anew, since it cannot be cut as asked: %v", j.info.name, err))
		return
	}
	j.cut, j.hasProfileCut, j.entry.Blocks = cut, true, describeBlocks(cut)
	if sameSource(other, j.entry) {
		j.entry.Blocks = slices.Clone(other.Blocks)
	}
}

// describeDevice lists what the numbers of a device were measured with: hardware, driver, engine and method.
func describeDevice(d formats.ProfileDevice) string {
	return strings.Join(slices.DeleteFunc([]string{d.Name, d.Driver, d.Engine + " " + d.EngineVersion, d.Method}, func(s string) bool { return s == "" }), ", ")
}

// describeInputs lists a model's inputs with their types and dimensions, its constants and its libraries of custom
// operators, as one text to compare.
func describeInputs(m *formats.ProfileModel) string {
	s := document.Map(m.Inputs, func(t *formats.TensorInfo) string { return fmt.Sprintf("%s %s%v", t.Name, t.DType, t.Shape) })
	for _, c := range m.Constants {
		s = append(s, fmt.Sprintf("%s = %v", c.Name, c.Value[0]))
	}
	for _, l := range m.Operators {
		s = append(s, fmt.Sprintf("operators of %s (SHA-256 %.12s)", filepath.Base(l.Path), l.SHA256))
	}
	return strings.Join(s, ", ")
}

// cutNames returns the names of the tensors at each inner cut of a profile's blocks, from which the model can be cut
// again.
func cutNames(blocks []formats.Block) [][]string {
	var out [][]string
	for _, b := range blocks[:max(0, len(blocks)-1)] {
		names := document.Map(b.Cut, func(t *formats.TensorInfo) string { return t.Name })
		out = append(out, names)
	}
	return out
}
