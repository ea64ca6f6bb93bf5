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
func (r *runner) adopt() error {
	// Numbers that were measured in another way are not comparable.
	now := provenance(r.dev, r.o.Engine.Info(), r.o, r.begun)
	stale := false
	for _, d := range r.profile.Devices {
		if d.Device == r.dev.Kind && !sameProvenance(d, now) {
			stale = true
			r.warn("", fmt.Sprintf("%s was measured with %s: what is asked for is measured again, and numbers of other models on it are no longer comparable",
				d.Device, describe(d)))
		}
	}

	// Find each model in the profile, and decide whether its cuts and numbers stay.
	for _, j := range r.jobs {
		fresh := &formats.ProfileModel{
			Model: j.in.name, Source: &formats.ModelSource{Path: relativeTo(r.o.Out, j.in.path), SHA256: j.in.sha256, Weights: j.in.files},
			Inputs: inputInfos(&j.in), Outputs: outputInfos(&j.in), Bucket: j.in.bucket, Constants: constantInfos(j.in.constants), Operators: j.in.operators,
		}
		j.entry = fresh
		have := findModel(r.profile, fresh)
		if have != nil {
			j.before = slices.Clone(have.Measurements)
		}
		switch {
		case have == nil:
			r.cutAs(j)
			continue
		case !sameSource(have, fresh):
			r.warn(j.in.name, fmt.Sprintf("%s: the file differs from the one that was measured: its old numbers are replaced", j.in.name))
			continue
		}

		// Numbers of other devices belong to the same cuts, so these are not changed without --force.
		others := slices.ContainsFunc(have.Measurements, func(m formats.Measurement) bool { return m.Device != r.dev.Kind })
		want := min(r.o.Blocks, j.m.atoms())
		if len(have.Blocks) != want {
			if others && !r.o.Force {
				return inputError("%s is cut into %d blocks in the profile, which holds numbers of another device for them; %d were asked for: use --blocks %d, or --force to drop them",
					j.in.name, len(have.Blocks), want, len(have.Blocks))
			}
			r.warn(j.in.name, fmt.Sprintf("%s: cut into %d blocks instead of %d: its old numbers are replaced", j.in.name, want, len(have.Blocks)))
			continue
		}
		if before, now := shapes(have), shapes(fresh); have.Inputs != nil && before != now {
			if others && !r.o.Force {
				return inputError("%s was measured with inputs %s in the profile, %s were asked for: write another profile (-o), or --force to drop the old numbers",
					j.in.name, before, now)
			}
			r.warn(j.in.name, fmt.Sprintf("%s: inputs %s instead of %s: its old numbers are replaced", j.in.name, now, before))
			continue
		}
		cut, err := j.m.at(cutNames(have.Blocks))
		if err != nil {
			if others && !r.o.Force {
				return fmt.Errorf("%w: the profile's blocks of %s cannot be made again: %w (--force cuts it anew and drops what was measured)", ErrInput, j.in.name, err)
			}
			r.warn(j.in.name, fmt.Sprintf("%s: cut anew, its old numbers are replaced: %v", j.in.name, err))
			continue
		}

		// Keep the cuts and the numbers.
		j.cut, j.prior = cut, true
		fresh.Blocks = slices.Clone(have.Blocks)
		if !stale {
			fresh.FP16 = have.FP16
		}
		fresh.Measurements = slices.Clone(have.Measurements)
		if stale {
			dropMeasurements(fresh, r.dev.Kind)
		}
	}
	return nil
}

// cutLikeOther cuts a model as the profile Options.CutsFrom does. If that profile has the same file, its data on
// the blocks is copied, too.
func (r *runner) cutAs(j *job) {
	if r.o.Cuts == nil {
		return
	}
	like := r.o.Cuts.Find(j.in.name)
	if like == nil {
		r.warn(j.in.name, j.in.name+": the profile whose cuts are asked for does not hold it: it is cut anew")
		return
	}
	cut, err := j.m.at(cutNames(like.Blocks))
	if err != nil {
		r.warn(j.in.name, fmt.Sprintf("%s: cut anew, since it cannot be cut as asked: %v", j.in.name, err))
		return
	}
	j.cut, j.prior, j.entry.Blocks = cut, true, describeBlocks(cut)
	if sameSource(like, j.entry) {
		j.entry.Blocks = slices.Clone(like.Blocks)
	}
}

func describe(d formats.ProfileDevice) string {
	return strings.Join(slices.DeleteFunc([]string{d.Name, d.Driver, d.Engine + " " + d.EngineVersion, d.Method}, func(s string) bool { return s == "" }), ", ")
}

// describeInputs lists a model's inputs with their types and dimensions, its constants and its libraries of custom
// operators, as one text to compare.
func shapes(m *formats.ProfileModel) string {
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
