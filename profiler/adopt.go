package profiler

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"inferplan/formats"
)

// adoptCuts looks the models up in the profile. A model that the profile has keeps its cuts and measurements
// there, unless its file, its inputs or the number of blocks changed.
func (r *runner) adoptCuts() error {
	// Numbers that were measured in another way are not comparable.
	current := provenance(r.dev, r.options.Engine.Info(), r.options, r.begun)
	stale := false
	for _, d := range r.profile.Devices {
		if d.Device == r.dev.Kind && !sameProvenance(d, current) {
			stale = true
			r.progress.warn("", fmt.Sprintf("%s was measured with %s: what is asked for is measured again, and numbers of other models on it are no longer comparable",
				d.Device, describeDevice(d)))
		}
	}

	for _, j := range r.jobs {
		if err := r.adoptModel(j, stale); err != nil {
			return err
		}
	}
	return nil
}

// adoptModel looks one model up in the profile. If the device's numbers are stale, it keeps only the cuts and the
// numbers of other devices.
func (r *runner) adoptModel(j *modelJob, stale bool) error {
	entry := &formats.ProfileModel{
		Model: j.info.name, Source: &formats.ModelSource{Path: relativeTo(r.options.OutPath, j.info.path), SHA256: j.info.sha256, Weights: j.info.files},
		Inputs: inputInfos(&j.info), Outputs: outputInfos(&j.info), Bucket: j.info.bucket, Constants: constantInfos(j.info.constants), Operators: j.info.operators,
	}
	j.entry = entry
	known := findModel(r.profile, entry)
	if known == nil {
		j.cutLike(r.options.CutsFrom, &r.progress)
		return nil
	}
	j.oldMeasurements = slices.Clone(known.Measurements)
	if !sameSource(known, entry) {
		r.progress.warn(j.info.name, fmt.Sprintf("%s: the file differs from the one that was measured: its old numbers are replaced", j.info.name))
		return nil
	}

	// Numbers of other devices belong to the same cuts, so these are not changed without --force.
	cut, conflict := j.knownCut(known, r.options.Blocks)
	if conflict != nil {
		otherDevices := slices.ContainsFunc(known.Measurements, func(m formats.Measurement) bool { return m.Device != r.dev.Kind })
		if otherDevices && !r.options.Force {
			return conflict.refusal
		}
		r.progress.warn(j.info.name, conflict.warning)
		return nil
	}

	// Keep the cuts and the numbers.
	j.cut, j.hasProfileCut = cut, true
	entry.Blocks = slices.Clone(known.Blocks)
	entry.Measurements = slices.Clone(known.Measurements)
	if stale {
		dropMeasurements(entry, r.dev.Kind)
	} else {
		entry.FP16 = known.FP16
	}
	return nil
}

// cutConflict says why a model cannot keep the cuts of the profile: as an error, and as a warning if it is cut anew.
type cutConflict struct {
	refusal error
	warning string
}

// knownCut cuts a model as the profile does. If another number of blocks or other inputs are asked for, or it
// cannot be cut so, it returns the conflict.
func (j *modelJob) knownCut(known *formats.ProfileModel, requestedBlocks int) (cutModel, *cutConflict) {
	name := j.info.name
	if blocks := min(requestedBlocks, j.m.atomCount()); len(known.Blocks) != blocks {
		return nil, &cutConflict{
			inputError("%s is cut into %d blocks in the profile, which holds numbers of another device for them; %d were asked for: use --blocks %d, or --force to drop them",
				name, len(known.Blocks), blocks, len(known.Blocks)),
			fmt.Sprintf("%s: cut into %d blocks instead of %d: its old numbers are replaced", name, blocks, len(known.Blocks)),
		}
	}
	if knownInputs, currentInputs := describeInputs(known), describeInputs(j.entry); known.Inputs != nil && knownInputs != currentInputs {
		return nil, &cutConflict{
			inputError("%s was measured with inputs %s in the profile, %s were asked for: write another profile (-o), or --force to drop the old numbers",
				name, knownInputs, currentInputs),
			fmt.Sprintf("%s: inputs %s instead of %s: its old numbers are replaced", name, currentInputs, knownInputs),
		}
	}
	cut, err := j.m.cutAt(cutNames(known.Blocks))
	if err != nil {
		return nil, &cutConflict{
			fmt.Errorf("%w: the profile's blocks of %s cannot be made again: %w (--force cuts it anew and drops what was measured)", ErrInput, name, err),
			fmt.Sprintf("%s: cut anew, its old numbers are replaced: %v", name, err),
		}
	}
	return cut, nil
}

// cutLike cuts a model as another profile does, if there is one. If that profile has the same file, its data on the
// blocks is copied, too.
func (j *modelJob) cutLike(profile *formats.Profile, progress *progress) {
	if profile == nil {
		return
	}
	other := profile.FindModel(j.info.name)
	if other == nil {
		progress.warn(j.info.name, j.info.name+": the profile whose cuts are asked for does not hold it: it is cut anew")
		return
	}
	cut, err := j.m.cutAt(cutNames(other.Blocks))
	if err != nil {
		progress.warn(j.info.name, fmt.Sprintf("%s: cut anew, since it cannot be cut as asked: %v", j.info.name, err))
		return
	}
	j.cut, j.hasProfileCut, j.entry.Blocks = cut, true, describeBlocks(cut)
	if sameSource(other, j.entry) {
		j.entry.Blocks = slices.Clone(other.Blocks)
	}
}

func describeDevice(d formats.ProfileDevice) string {
	return strings.Join(slices.DeleteFunc([]string{d.Name, d.Driver, d.Engine + " " + d.EngineVersion, d.Method}, func(s string) bool { return s == "" }), ", ")
}

// describeInputs lists a model's inputs with their types and dimensions, its constants and its libraries of custom
// operators, as one text to compare.
func describeInputs(m *formats.ProfileModel) string {
	var s []string
	for _, t := range m.Inputs {
		s = append(s, fmt.Sprintf("%s %s%v", t.Name, t.DType, t.Shape))
	}
	for _, c := range m.Constants {
		s = append(s, fmt.Sprintf("%s = %v", c.Name, c.Value[0]))
	}
	for _, l := range m.Operators {
		s = append(s, fmt.Sprintf("operators of %s (SHA-256 %.12s)", filepath.Base(l.Path), l.SHA256))
	}
	return strings.Join(s, ", ")
}

func cutNames(blocks []formats.Block) [][]string {
	var out [][]string
	for _, b := range blocks[:max(0, len(blocks)-1)] {
		var names []string
		for _, t := range b.Cut {
			names = append(names, t.Name)
		}
		out = append(out, names)
	}
	return out
}
