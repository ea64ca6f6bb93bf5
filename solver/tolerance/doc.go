// Package tolerance says of measured values whether fresh ones seldom exceed a limit, at a
// stated confidence: a one-sided tolerance bound of normal values (NIST/SEMATECH e-Handbook of
// Statistical Methods, section 7.2.6.3).
//
// A confidence interval tells of the mean. A tolerance bound tells of the values that are still
// to come. Few values leave both mean and deviation uncertain. Both count here, by the
// noncentral t distribution: if fresh values exceeded the limit more often than is allowed,
// the measured ones would say so but for a chance of 1 less the confidence.
//
// Values that follow each other in time are alike. Correlated counts them as fewer independent
// ones.
package tolerance
