// Package bench measures a clean-up of a large node against what people use today: kube-proxy --cleanup, and a loop over the
// native tools. All of it happens in one guest in one run, so that only ratios are told: a guest's own times mean nothing.
package bench
