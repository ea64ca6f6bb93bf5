package profiler

import (
	"cmp"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"inferplan/formats"
)

// profileFormat is the first field of the documents written here.
const profileFormat = "inferplan.profile/v1"

// Merge adds the contents of src to dst: devices by kind, models by the hash of their file (by name if they have
// none), measurements by device kind, share and batch, language models by name, device kind and tensor
// parallelism. If both have an entry, that of src replaces the other. A model of the same name and another hash is
// replaced completely. A model that both have must be cut at the same places in both. src is not changed.
func Merge(dst, src *formats.Profile) error {
	// Refuse profiles in which a model is cut in two ways.
	for i := range src.Models {
		model := &src.Models[i]
		known := findModel(dst, model)
		if known != nil && sameSource(known, model) && !formats.SameCuts(known.Blocks, model.Blocks) {
			return fmt.Errorf("%w: model %s: cut into %d blocks in one profile and into %d at other places in the other: measure one of them again with the other's cuts (plan profile -o the other's file)",
				ErrInput, model.Model, len(known.Blocks), len(model.Blocks))
		}
	}

	// Add devices, models with their measurements, language models, and notes.
	dst.Format = cmp.Or(dst.Format, profileFormat)
	for _, d := range src.Devices {
		putDevice(dst, d)
	}
	for i := range src.Models {
		model := &src.Models[i]
		entry := putModel(dst, model)
		for _, m := range model.Measurements {
			putMeasurement(entry, m)
		}
	}
	mergeLLMs(dst, src)
	for _, n := range src.Notes {
		subject, _, _ := strings.Cut(n, noteSep)
		putNote(dst, subject, n)
	}
	return nil
}

// findModel returns dst's model with the same name and file as m or, if there is none, with the same name. It
// returns nil if there is neither.
func findModel(dst *formats.Profile, m *formats.ProfileModel) *formats.ProfileModel {
	var sameName *formats.ProfileModel
	for i := range dst.Models {
		known := &dst.Models[i]
		if m.Source != nil && known.Source != nil && m.Source.SHA256 == known.Source.SHA256 && known.Model == m.Model {
			return known
		}
		if known.Model == m.Model {
			sameName = known
		}
	}
	return sameName
}

// sameSource reports whether two models are the same file. Models without a source are the same if their names
// are.
func sameSource(a, b *formats.ProfileModel) bool {
	if a.Source == nil || b.Source == nil {
		return a.Source == b.Source
	}
	return a.Source.SHA256 == b.Source.SHA256
}

// putModel gives dst the model m with its blocks, and returns dst's entry. Measurements that dst had before stay if
// the file and the cuts are the same. Those of m are not added.
func putModel(dst *formats.Profile, m *formats.ProfileModel) *formats.ProfileModel {
	known := findModel(dst, m)
	if known == nil {
		dst.Models = append(dst.Models, formats.ProfileModel{})
		known = &dst.Models[len(dst.Models)-1]
	}
	var oldMeasurements []formats.Measurement
	if known.Model != "" && sameSource(known, m) && formats.SameCuts(known.Blocks, m.Blocks) {
		oldMeasurements = known.Measurements
	}
	*known = *m
	known.Measurements = oldMeasurements
	if known.Measurements == nil {
		known.Measurements = []formats.Measurement{}
	}
	return known
}

// putDevice replaces or adds a device by its kind, and returns the profile's entry.
func putDevice(dst *formats.Profile, d formats.ProfileDevice) *formats.ProfileDevice {
	for i := range dst.Devices {
		if dst.Devices[i].Device == d.Device {
			dst.Devices[i] = d
			return &dst.Devices[i]
		}
	}
	dst.Devices = append(dst.Devices, d)
	return &dst.Devices[len(dst.Devices)-1]
}

// putMeasurement replaces or adds a measurement in a model's entry of a profile, and keeps their order: by device
// kind, share and batch.
func putMeasurement(entry *formats.ProfileModel, m formats.Measurement) {
	i, found := slices.BinarySearchFunc(entry.Measurements, m, func(a, b formats.Measurement) int {
		return cmp.Or(cmp.Compare(a.Device, b.Device), cmp.Compare(a.Share, b.Share), cmp.Compare(a.Batch, b.Batch))
	})
	if found {
		entry.Measurements[i] = m
		return
	}
	// Documents from elsewhere may have another order, so search all entries.
	for k := range entry.Measurements {
		if known := entry.Measurements[k]; known.Device == m.Device && known.Share == m.Share && known.Batch == m.Batch {
			entry.Measurements[k] = m
			return
		}
	}
	entry.Measurements = slices.Insert(slices.Clip(entry.Measurements), i, m) // into a new list: others may share the old one
}

// dropMeasurements removes a device kind's measurements from a model.
func dropMeasurements(m *formats.ProfileModel, device string) {
	m.Measurements = slices.DeleteFunc(m.Measurements, func(h formats.Measurement) bool { return h.Device == device })
}

// noteSep ends the part of a note that names its subject.
const noteSep = ": "

// putNote sets the note about a subject, or removes it if the text is empty. The subject of a note is the part
// before the first ": ".
func putNote(p *formats.Profile, subject, note string) {
	i := slices.IndexFunc(p.Notes, func(n string) bool {
		key, _, _ := strings.Cut(n, noteSep)
		return key == subject
	})
	switch {
	case note == "" && i >= 0:
		p.Notes = slices.Delete(p.Notes, i, i+1)
	case note == "":
	case i >= 0:
		p.Notes[i] = note
	default:
		p.Notes = append(p.Notes, note)
	}
}

// relativeTo returns a model's path relative to the profile's folder, if that is possible.
func relativeTo(file, path string) string {
	if file == "" {
		return filepath.ToSlash(path)
	}
	abs, err1 := filepath.Abs(path)
	dir, err2 := filepath.Abs(filepath.Dir(file))
	if err1 != nil || err2 != nil {
		return filepath.ToSlash(path)
	}
	rel, err := filepath.Rel(dir, abs)
	if err != nil {
		return filepath.ToSlash(path)
	}
	return filepath.ToSlash(rel)
}

// mergeLLMs adds the language models of a profile to another. An entry of the same model, device and tensor
// parallelism is replaced.
func mergeLLMs(dst, src *formats.Profile) {
	for _, m := range src.LLMs {
		k := slices.IndexFunc(dst.LLMs, func(o formats.LLMProfile) bool { return o.Model == m.Model })
		if k < 0 {
			dst.LLMs = append(dst.LLMs, m)
			continue
		}
		known := &dst.LLMs[k]
		known.WeightBytes, known.KVBytesPerToken, known.ContextTokens = max(known.WeightBytes, m.WeightBytes), max(known.KVBytesPerToken, m.KVBytesPerToken), max(known.ContextTokens, m.ContextTokens)
		for _, instance := range m.Instances {
			isSame := func(o formats.LLMInstance) bool {
				return o.Device == instance.Device && o.TensorParallel == instance.TensorParallel
			}
			known.Instances = append(slices.DeleteFunc(slices.Clone(known.Instances), isSame), instance)
		}
	}
}
