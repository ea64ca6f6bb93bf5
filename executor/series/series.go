package series

import (
	"slices"

	"inferplan/formats"
	"inferplan/policy"
)

// Prefix begins the name of every series.
const Prefix = "inferplan_"

// Labels are the labels of a model's series: model, and class where the
// plan has classes.
type Labels bool

// LabelsOf returns the labels of a plan's models.
func LabelsOf(models []policy.Model) Labels {
	return Labels(slices.ContainsFunc(models, func(m policy.Model) bool { return m.Class != "" }))
}

// Names returns the names of the labels, with more behind them.
func (l Labels) Names(more ...string) []string {
	if l {
		return append([]string{"model", "class"}, more...)
	}
	return append([]string{"model"}, more...)
}

// Values returns the labels of a model, with more behind them.
func (l Labels) Values(k formats.ModelClass, more ...string) []string {
	if l {
		return append([]string{k.Model, k.Class}, more...)
	}
	return append([]string{k.Model}, more...)
}
