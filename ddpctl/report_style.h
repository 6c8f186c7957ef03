/* The style of the report's page, for light and dark, from 360 px to wide, screen and paper. */
#ifndef DDPCTL_REPORT_STYLE_H
#define DDPCTL_REPORT_STYLE_H

extern const char report_style[];

#endif
