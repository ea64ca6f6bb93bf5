package series

import (
	"slices"

	"inferplan/formats"
	"inferplan/policy"
)

// Prefix is the beginning of the name of every series.
const Prefix = "inferplan_"

// Labels are the labels of a model's series: the model, and the class if the plan has classes.
type Labels bool

// LabelsOf returns the labels of a plan's models.
func LabelsOf(models []policy.Model) Labels {
	return Labels(slices.ContainsFunc(models, func(m policy.Model) bool { return m.Class != "" }))
}

// Names returns the names of the labels, followed by extra.
func (l Labels) Names(extra ...string) []string {
	if l {
		return append([]string{"model", "class"}, extra...)
	}
	return append([]string{"model"}, extra...)
}

// Values returns the label values of a model, followed by extra.
func (l Labels) Values(k formats.ModelClass, extra ...string) []string {
	if l {
		return append([]string{k.Model, k.Class}, extra...)
	}
	return append([]string{k.Model}, extra...)
}
