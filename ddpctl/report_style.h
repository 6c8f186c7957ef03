/* The style of the report's page: light and dark, 360 px and wide, screen and paper. */
#ifndef DDPCTL_REPORT_STYLE_H
#define DDPCTL_REPORT_STYLE_H

extern const char report_style[];

#endif
