// Package recorded reads what the artifact of PPipe and its authors measured and planned: profiles of models in
// blocks and in layers, and plans.
package recorded
